#!/usr/bin/env bash
# Started by `fanout-gateway --proxy --bind-keys`: what stands in this environment as a key is a dummy already. Runs a
# command of the change as its own user, with an environment of named variables only.
#
#   as-agent.sh COMMAND [ARGUMENT...]
#   AGENT_USER, AGENT_HOME   as for prepare.sh
#   AGENT_KEYS               names of the keys that the agent is given dummies of
#   AGENT_ENV                further NAME=VALUE lines, such as the base URL of a server of your own
set -euo pipefail
user="${AGENT_USER:?}" home="${AGENT_HOME:?}"

roots="$(dirname "$home")/$(basename "$home")-roots.pem" # the gateway's own folder is closed to other users
sudo install -m 0444 "$SSL_CERT_FILE" "$roots"
given=(HOME="$home" PATH="$home/venv/bin:$PATH" LANG=C.UTF-8 CI=true)
for name in HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy NODE_USE_ENV_PROXY; do
  given+=("$name=${!name-}")
done
for name in SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE AWS_CA_BUNDLE NODE_EXTRA_CA_CERTS DENO_CERT \
  GRPC_DEFAULT_SSL_ROOTS_FILE_PATH; do
  given+=("$name=$roots")
done
for name in ${AGENT_KEYS-}; do
  case "${!name-}" in
    fanout-sealed-*) given+=("$name=${!name}") ;;
    '') ;;
    *) echo "as-agent.sh: $name is no dummy: run this under fanout-gateway" >&2 && exit 1 ;;
  esac
done
while IFS= read -r line; do
  if [ -n "$line" ]; then given+=("$line"); fi
done <<< "${AGENT_ENV-}"
cd "$(dirname "$home")"
exec sudo -u "$user" env -i "${given[@]}" bash -c 'cd "$HOME/change" && exec "$@"' bash "$@"
