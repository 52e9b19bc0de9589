"""What a silo's calls to a SuperLink carry: who calls, with which version of Flower, signed with the silo's key.

The headers are those of Flower's `NodeAuthHttpInterceptor` and `RuntimeVersionHttpInterceptor`, which
`tests/flower/test_silo.py` compares them with. Flower's own import the web server of its SuperLink, which would be a
quarter of the memory of a silo that waits.
"""

from __future__ import annotations

import json
from base64 import b64encode

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    FLWR_COMPONENT_NAME_METADATA_KEY,
    FLWR_PACKAGE_NAME_METADATA_KEY,
    FLWR_PACKAGE_VERSION_METADATA_KEY,
)
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.version import package_name, package_version

from fedcollab.errors import InputError

COMPONENT = "SuperNode"
OTHER_VERSION = 1001  # the code in the answer of a SuperLink to a Flower of another version


class Signing:
    """Signs every call, and ends the silo where the coordinator's Flower is of another version.

    Parameters
    ----------
    private, public : key
        The silo's key pair.
    """

    def __init__(self, private: ec.EllipticCurvePrivateKey, public: ec.EllipticCurvePublicKey) -> None:
        self._private = private
        self._always = {
            FLWR_PACKAGE_NAME_METADATA_KEY: package_name,
            FLWR_PACKAGE_VERSION_METADATA_KEY: package_version,
            FLWR_COMPONENT_NAME_METADATA_KEY: COMPONENT,
            FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key_to_bytes(public)).decode(),
        }

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Send a call with its headers.

        Parameters
        ----------
        context : ProtobufRequestContext
            The call.
        call_next : callable
            What sends it.

        Raises
        ------
        InputError
            If the SuperLink refuses this version of Flower.
        """
        time = now().isoformat()
        signature = b64encode(sign_message(self._private, time.encode("ascii"))).decode()
        context.request.headers.update({**self._always, TIMESTAMP_HEADER: time, FLEET_HTTP_SIGNATURE_HEADER: signature})
        response = call_next(context)
        if response.is_error:
            _check_version(response)
        return response


def _check_version(response: httpx.Response) -> None:
    """Raise InputError if an error says that the coordinator's Flower is of another version."""
    try:
        told = json.loads(response.text)
    except ValueError:
        return
    if isinstance(told, dict) and told.get("code") == OTHER_VERSION:
        why = told.get("extra") or told.get("detail")
        raise InputError(f"the coordinator's Flower is of another version than this silo's: {why}")
