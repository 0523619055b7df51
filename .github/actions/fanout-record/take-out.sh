#!/usr/bin/env bash
# Takes the recordings and the report of a change out of its user's home. They are read as that user, who can open
# nothing of ours by a link, and only plain files are kept.
#
#   take-out.sh FOLDER       FOLDER: where they go
#   AGENT_USER, AGENT_HOME   as for prepare.sh;  RECORDINGS  the folder of the recordings in the change
set -euo pipefail
user="${AGENT_USER:?}" home="${AGENT_HOME:?}"

mkdir -p -- "$1"
sudo -u "$user" env -i HOME="$home" PATH=/usr/bin:/bin bash -euo pipefail -c '
  cd "$HOME/change"
  found=()
  for path in "$1" fanout-report.json; do if [ -e "$path" ]; then found+=("$path"); fi; done
  [ "${#found[@]}" != 0 ] || exit 0
  find "${found[@]}" -type f -links 1 \( -name "t*.jsonl" -o -name fanout-report.json \) -print0 |
    tar --create --null --files-from=- --file=-
' bash "${RECORDINGS:?}" | tar --extract --ignore-zeros --no-same-owner --no-same-permissions --directory="$1" --file=-
find "$1" ! -type f ! -type d -delete
