"""Requests to the HTTP server of a broker process."""

import http.client
from contextlib import closing

from tests.eventually import SOON_S


def asked(endpoint, path, body=None, *, method=None, **headers):
    """Status, headers and text of an answer; a request with a body is a POST."""
    with closing(http.client.HTTPConnection(endpoint, timeout=SOON_S)) as connection:
        method = method or ("GET" if body is None else "POST")
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
