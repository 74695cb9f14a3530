"""A small shop, as the program of the pictures: Flask, served by werkzeug's threads
to clients of its own.  Its catalogue is a template, its export JSON, and its brochure
10 MiB, handed to werkzeug as a whole, or by "shop.py ROUNDS pieces" in pieces.
Behind most answers, werkzeug reads what the client may send yet, into 10 MB."""
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
    visits.append({"page": "catalogue", "seen": [a["name"] for a in ARTICLES]})
    return render_template_string(PAGE, articles=ARTICLES)


@app.route("/export")
def export():
    return jsonify([dict(article, net=article["price"] / 1.19)
                    for article in ARTICLES])


@app.route("/brochure")
def brochure():
    file = io.BytesIO(BROCHURE)
    return Response(iter(lambda: file.read(PIECE), b""), mimetype="application/pdf")


def visit(port, pages):
    for page in pages:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", page)
        answer = connection.getresponse()
        while answer.read(2**16):
            pass
        connection.close()


def main(rounds):
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
