"""A small web shop, whose profile the documentation's pictures show.

    shop.py ROUNDS [pieces]

Flask serves the shop with werkzeug's threads, and two clients in the same process visit
it. The catalogue is a template, and the export is JSON. The brochure has 10 MiB, which
werkzeug gets as a whole, or in pieces of 64 KiB with the argument "pieces". After most
answers, werkzeug reads the rest of the client's request into a buffer of 10 MB.
"""
from __future__ import annotations

import http.client
import io
import sys
import threading

from flask import Flask, Response, jsonify, render_template_string
from werkzeug.serving import make_server

ARTICLES = [{"name": "article %d" % i, "price": i * 7 % 100, "tags": ["a", "b"]}
            for i in range(200)]
PAGE = """<ul>{% for article in articles %}
<li>{{ article.name|title }}: {{ "%.2f"|format(article.price) }}</li>
{% endfor %}</ul>"""
BROCHURE = bytes(10 * 2**20)
PIECE = 2**16 if "pieces" in sys.argv else -1

app = Flask(__name__)
visits = []


@app.route("/")
def catalogue():
    """Return the page with all articles."""
    visits.append({"page": "catalogue", "seen": [a["name"] for a in ARTICLES]})
    return render_template_string(PAGE, articles=ARTICLES)


@app.route("/export")
def export():
    """Return all articles with their net prices as JSON."""
    return jsonify([dict(article, net=article["price"] / 1.19)
                    for article in ARTICLES])


@app.route("/brochure")
def brochure():
    """Return the brochure as one block or in pieces."""
    file = io.BytesIO(BROCHURE)
    return Response(iter(lambda: file.read(PIECE), b""), mimetype="application/pdf")


def visit(port, pages):
    """Request the given pages from the server."""
    for page in pages:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", page)
        answer = connection.getresponse()
        while answer.read(2**16):
            pass
        connection.close()


def main(rounds):
    """Serve the shop to two clients that visit all pages several times."""
    import logging
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, name="server").start()
    clients = [threading.Thread(
        target=visit, name="client %d" % number,
        args=(server.port, ["/", "/export", "/", "/brochure"] * rounds))
        for number in (1, 2)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    server.shutdown()


main(int(sys.argv[1]))
