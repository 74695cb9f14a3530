/* A library whose code runs for as long as its argument is not zero. */
int spin_until_zero(int value)
{
    volatile int still = value;
    while (still)
        ;
    return 0;
}
