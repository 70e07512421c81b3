"""The calls of AWS that hand out temporary logins for Redshift, over HTTP as boto3 speaks it.

GetClusterCredentials and GetClusterCredentialsWithIAM come in the query protocol and are answered
in XML; GetCredentials of Redshift Serverless comes and goes as JSON. Signatures are not checked,
only whose key a request names.
"""

import json
import re
import secrets
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qsl

from floodmark.subprocesses import LOOPBACK
from servers import S3Server
from servers.redshift.authentication import Logins

_KEY = re.compile(r"Credential=([^/]+)/\d+/([\w-]+)/")


class ApiError(Exception):
    """An answer with a code and a message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RedshiftApi:
    """One cluster and one workgroup, `floodmark`; `identities` are the keys that it knows.

    What it hands out opens the stand-in whose logins it is given, and nothing else does.
    """

    def __init__(self, logins: Logins) -> None:
        self._logins = logins
        self.identities = {S3Server.access_key: "IAMR:loader"}
        self.denied: set[str] = set()
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        """Each call: its name, the region that it was signed for, and its parameters."""
        self.seconds: float = 3600
        """How long what is handed out is said to be valid."""
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                api._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.endpoint = f"http://{LOOPBACK}:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=[0.05], daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"])).decode()
        target = request.headers.get("X-Amz-Target")
        given = json.loads(body) if target else dict(parse_qsl(body))
        action = target.partition(".")[2] if target else given["Action"]
        try:
            status, answer = 200, self._call(action, given, request.headers["Authorization"])
        except ApiError as error:
            status, answer = 400, {"Code": error.code, "Message": str(error)}
        write = _json if target else _xml
        data = write(action, answer, failed=status != 200).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _call(self, action: str, given: dict[str, str], signature: str) -> dict[str, Any]:
        found = _KEY.search(signature)
        assert found is not None
        self.asked.append((action, found[2], given))
        identity = self.identities.get(found[1])
        if identity is None:
            raise ApiError("InvalidClientTokenId", "The security token is invalid.")
        if action in self.denied:
            raise ApiError("AccessDenied", f"User: {identity} is not authorized to do {action}")
        place = given.get("ClusterIdentifier") or given.get("workgroupName")
        if place != "floodmark":
            missing = "ClusterNotFound" if "Action" in given else "ResourceNotFoundException"
            raise ApiError(missing, f"{place} not found.")
        if action == "GetClusterCredentials":
            identity = f"IAM:{given['DbUser']}"
        password = secrets.token_urlsafe(30)
        self._logins.temporary[identity] = password
        expires = datetime.now(UTC) + timedelta(seconds=self.seconds)
        return {"DbUser": identity, "DbPassword": password, "Expiration": expires}


def _xml(action: str, answer: dict[str, Any], *, failed: bool) -> str:
    if failed:
        fields = "".join(f"<{name}>{value}</{name}>" for name, value in answer.items())
        return f"<ErrorResponse><Error>{fields}</Error></ErrorResponse>"
    texts = {**answer, "Expiration": answer["Expiration"].isoformat()}
    fields = "".join(f"<{name}>{value}</{name}>" for name, value in texts.items())
    return f"<{action}Response><{action}Result>{fields}</{action}Result></{action}Response>"


def _json(_: str, answer: dict[str, Any], *, failed: bool) -> str:
    if failed:
        return json.dumps({"__type": answer["Code"], "message": answer["Message"]})
    return json.dumps(
        {
            "dbUser": answer["DbUser"],
            "dbPassword": answer["DbPassword"],
            "expiration": answer["Expiration"].timestamp(),
        }
    )
