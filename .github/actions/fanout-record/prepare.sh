#!/usr/bin/env bash
# Lays a change out for a user that owns nothing else, and installs it as that user: whatever the code of the change does,
# it can read neither the environment nor the memory of what runs beside it. No key may be near this step.
#
#   prepare.sh FOLDER        FOLDER: the checkout of the change
#   AGENT_USER, AGENT_HOME   the user and its home; it is made where it is missing
set -euo pipefail
user="${AGENT_USER:?}" home="${AGENT_HOME:?}"

if ! id -u "$user" > /dev/null 2>&1; then
  sudo useradd --no-create-home --user-group --shell /usr/sbin/nologin "$user" # in no other group: no sudo, no docker
fi
sudo install -d -m 0700 -o "$user" -g "$(id -gn "$user")" "$home"
sudo cp -R -- "$1" "$home/change"
sudo chown -R -h "$user:$(id -gn "$user")" "$home/change"
sudo -u "$user" env -i HOME="$home" PATH="$PATH" LANG=C.UTF-8 bash -euo pipefail -c '
  cd "$HOME/change"
  python -m venv "$HOME/venv"
  "$HOME/venv/bin/python" -m pip install -q "$@"
' bash "${@:2}"
