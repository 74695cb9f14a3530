import py
from rpython.rlib.rvmprof import cintf
from rpython.tool.udir import udir

if not cintf.has_allocations:
    py.test.skip("no allocation samples on this platform")


class AppTestAllocationSampling(object):
    spaceconfig = {'usemodules': ['_vmprof', 'struct']}

    def setup_class(cls):
        cls.w_tmpfilename = cls.space.wrap(
            str(udir.join('test_allocation_sampling')))
        cls.w_translated = cls.space.wrap(cls.runappdirect)

    def w_run(self, work, allocations='', period=0.0):
        """Call work() with sampling.  Return the profile's bytes and the statistics."""
        import _vmprof
        with open(self.tmpfilename, 'wb') as f:
            _vmprof.enable(f.fileno(), period, 0, 0, 0, 0, allocations)
            try:
                work()
            finally:
                _vmprof.disable()
        return self.profile(), _vmprof.allocation_statistics()

    def test_what_makes_no_sense(self):
        import _vmprof
        for text in ['interval=0', 'interval=-1', 'interval=', 'interval=128k',
                     'interval=%d' % (2 ** 62 + 1), 'interval=%d' % 2 ** 64,
                     'interval=1000;gaps=none', 'interval=1000;limit=-1/s',
                     'interval=1000;limit=5', 'interval=1000;seed=x',
                     'interval=1000;lifetimes=2', 'interval']:
            e = raises(_vmprof.VMProfError, self.run, None, text)
            assert text.split(';')[-1].split('=')[0] in str(e.value)
            assert _vmprof.is_enabled() is False
        raises(TypeError, self.run, None, 1000)

    def test_bad_period_with_allocation_samples(self):
        import _vmprof
        for period in [-1.0, 1.0, 1e300]:
            raises(_vmprof.VMProfError, self.run, None, 'interval=1000', period)
            assert _vmprof.is_enabled() is False

    def test_no_samples_of_any_kind(self):
        import _vmprof
        raises(_vmprof.VMProfError, self.run, None, period=0.0)
        assert _vmprof.is_enabled() is False

    def test_set_allocation_interval_while_none_are_taken(self):
        import _vmprof
        raises(_vmprof.VMProfError, _vmprof.set_allocation_interval, 1000)
        def work():
            raises(_vmprof.VMProfError, _vmprof.set_allocation_interval, 1000)
        self.run(work, period=0.01)

    def test_gc_that_cannot_sample(self):
        import _vmprof
        if self.translated:
            skip("for GCs that can't sample, as before translation")
        e = raises(_vmprof.VMProfError, self.run, None, 'interval=1000')
        assert 'GC' in str(e.value)
        assert _vmprof.is_enabled() is False
        profile, counted = self.run(lambda: None, period=0.01)
        assert counted['samples'] == 0

    def test_statistics_are_named(self):
        import _vmprof
        assert sorted(_vmprof.allocation_statistics()) == [
            'allocated', 'collections', 'dropped', 'lost', 'memory',
            'not_followed', 'samples', 'time_samples']

    def w_allocate(self):
        for i in range(1000):
            self.last = [i] * 100

    def w_allocate_for(self, seconds):
        import time
        end = time.time() + seconds
        while time.time() < end:
            self.allocate()

    def test_fixed_gaps_sample_every_nth_byte(self):
        if not self.translated:
            skip("needs a GC that can sample")
        def the_function_to_find():
            self.allocate()
        profile, counted = self.run(
            the_function_to_find, 'interval=10000;gaps=fixed')
        assert counted['allocated'] > 800 * 1000
        # a large object may contain several sampled bytes
        assert counted['samples'] <= counted['allocated'] // 10000
        assert counted['samples'] >= counted['allocated'] // 10000 - 3
        assert counted['time_samples'] == counted['dropped'] == 0
        assert b'interval=10000' in profile
        assert b'gaps=fixed' in profile
        assert b':the_function_to_find:' in profile

    def w_profile(self):
        with open(self.tmpfilename, 'rb') as f:
            return f.read()

    def test_classes_of_instances(self):
        if not self.translated:
            skip("needs a GC that can sample")
        class Node(object):
            pass
        class Renamed(object):
            pass
        Renamed.__name__ = Renamed.__qualname__ = 'Late'
        Node.__qualname__ = 'Node'
        Node.__module__ = Renamed.__module__ = 'app.models'
        class Never(object):
            pass
        never = Never()
        def work():
            for i in range(20000):
                self.last = Node(), Renamed(), never
        for i in range(3):
            profile, counted = self.run(work, 'interval=1000')
            # the profile contains names of classes as plain text, once each
            assert profile.count(b'app.models.Node') == 1
            assert profile.count(b'app.models.Late') == 1
            assert b'Never' not in profile

    def test_classes_of_what_is_young_at_the_end(self):
        if not self.translated:
            skip("needs a GC that can sample")
        import gc
        class Node(object):
            pass
        Node.__qualname__ = 'Node'
        Node.__module__ = 'app.models'
        def work():
            self.last = [Node() for i in range(1000)]
        gc.collect()            # makes room in the nursery for all nodes
        profile, counted = self.run(work, 'interval=100')
        assert counted['collections'] <= 2
        assert b'app.models.Node' in profile

    def test_moments_have_names(self):
        import _vmprof
        _vmprof.mark('no profile')
        if not self.translated:
            skip("needs a GC that can sample")
        def work():
            _vmprof.mark('the first moment')
            _vmprof.mark('')
            self.allocate()
            _vmprof.mark('the second;:')
        profile, counted = self.run(work, 'interval=1000')
        first = profile.index(b'the first moment')
        assert profile.index(b'the second;:') > first
        raises(TypeError, _vmprof.mark, 5)

    def test_rotation_while_none_are_sampled(self):
        import _vmprof
        raises(_vmprof.VMProfError, _vmprof.rotate_allocations, 1)
        def work():
            raises(_vmprof.VMProfError, _vmprof.rotate_allocations, 1)
        self.run(work, period=0.01)
        raises(TypeError, _vmprof.rotate_allocations, 'x')
        raises(TypeError, _vmprof.rotate_allocations, 1,
               allocation_settings=5)

    def test_rotation(self):
        if not self.translated:
            skip("needs a GC that can sample")
        import _vmprof, os
        class Node(object):
            pass
        Node.__qualname__ = 'Node'
        Node.__module__ = 'app.models'
        nextfilename = self.tmpfilename + '.next'
        fd = os.open(nextfilename, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        def early():
            self.kept = [Node() for i in range(20000)]
        def late():
            self.allocate()
        def work():
            early()
            e = raises(_vmprof.VMProfError, _vmprof.rotate_allocations, fd,
                       'a=' + 5000 * 'b')
            assert 'too long' in str(e.value)
            assert _vmprof.rotate_allocations(
                fd, allocation_settings='run=a;part=2') == ''
            late()
        profile, counted = self.run(work, 'interval=1000;run=a')
        os.close(fd)
        assert b'run=a;' in profile and b'part=2' not in profile
        assert b':early:' in profile
        assert b'app.models.Node' in profile
        # the second profile has the names of the live objects, too
        os.rename(nextfilename, self.tmpfilename)
        profile = self.profile()
        assert b'run=a;part=2;' in profile
        assert b':early:' in profile and b':late:' in profile
        assert profile.count(b'app.models.Node') == 1

    def test_what_is_alive_while_none_are_sampled(self):
        import _vmprof
        for i in range(2):
            assert _vmprof.alive_allocations() == []
            assert _vmprof.alive_allocations(forget=True) == []
            assert _vmprof.alive_allocation_bytes() == (0.0, 0.0)
            assert _vmprof.alive_allocation_bytes(reset_peak=True) == (0.0, 0.0)
            self.run(lambda: None, period=0.01)
        assert _vmprof.ignore_allocations(True) is False
        if self.translated:
            assert _vmprof.ignore_allocations(False) is True
        _vmprof.ignore_allocations(False)

    def test_what_is_alive(self):
        if not self.translated:
            skip("needs a GC that can sample")
        import _vmprof
        class Node(object):
            pass
        def alive():
            numbers = _vmprof.alive_allocations()
            assert len(numbers) % 7 == 0
            return numbers[::7], numbers[3::7]
        def work():
            self.kept = [Node() for i in range(20000)]
            ids = set(map(id, self.kept))
            addresses, sizes = alive()
            assert len(ids.intersection(addresses)) > 100
            now, peak = _vmprof.alive_allocation_bytes()
            assert now > 20000 * 16
            assert peak >= now
            _vmprof.alive_allocations(forget=True)
            assert not ids.intersection(alive()[0])
            assert _vmprof.ignore_allocations(True) is False
            self.kept = [Node() for i in range(20000)]
            assert _vmprof.ignore_allocations(False) is True
            assert not set(map(id, self.kept)).intersection(alive()[0])
        profile, counted = self.run(work, 'interval=1000;in_memory=1')
        assert b':work:' in profile

    def test_limits(self):
        if not self.translated:
            skip("needs a GC that can sample")
        def work():
            self.allocate_for(0.5)
        profile, counted = self.run(work, 'interval=1000;limit=1000/s')
        assert b'limit=1000/s' in profile
        assert 0 < counted['samples'] < 2000
        profile, counted = self.run(work, 'interval=1000;limit=100ppm')
        assert b'limit=100ppm' in profile
        assert 0 < counted['samples'] < 2000

    def test_seed_makes_it_repeatable(self):
        if not self.translated:
            skip("needs a GC that can sample")
        for seed in [0, 7, 2 ** 64 - 1]:
            profile, counted = self.run(
                self.allocate, 'interval=1000;seed=%d' % seed)
            expected = 'seed=%d;' % seed
            assert expected.encode('ascii') in profile
            assert counted['samples'] > 0
        profile, counted = self.run(self.allocate, 'interval=1000')
        assert b'seed=' in profile

    def test_time_samples_beside_allocation_samples(self):
        if not self.translated:
            skip("needs a GC that can sample")
        def work():
            self.allocate_for(0.3)
        profile, counted = self.run(work, 'interval=10000', 0.001)
        assert counted['samples'] > 0
        assert counted['time_samples'] > 0

    def test_one_profile_after_another_as_vmprofs_package_ends_them(self):
        if not self.translated:
            skip("needs a GC that can sample")
        import _vmprof
        def work():
            self.allocate_for(0.3)
            _vmprof.stop_sampling()         # without start_sampling()
        for i in range(3):
            profile, counted = self.run(work, 'interval=10000', 0.001)
            assert counted['lost'] < counted['samples'] // 2
            assert counted['time_samples'] > 0

    def test_change_of_interval(self):
        if not self.translated:
            skip("needs a GC that can sample")
        import _vmprof
        def work():
            _vmprof.set_allocation_interval(2 ** 62)
            before = _vmprof.allocation_statistics()['samples']
            self.allocate()
            assert _vmprof.allocation_statistics()['samples'] == before
            raises(_vmprof.VMProfError, _vmprof.set_allocation_interval, 0)
            raises(_vmprof.VMProfError, _vmprof.set_allocation_interval, -1)
            _vmprof.set_allocation_interval(1000)
            self.allocate()
            assert _vmprof.allocation_statistics()['samples'] > before + 100
        self.run(work, 'interval=1000')

    def test_enable_twice(self):
        if not self.translated:
            skip("needs a GC that can sample")
        import _vmprof
        def work():
            raises(_vmprof.VMProfError, self.run, None, 'interval=1000')
        # the inner run() opens the same file, but does not write to it
        profile, counted = self.run(work, 'interval=1000')
        assert counted['samples'] > 0
