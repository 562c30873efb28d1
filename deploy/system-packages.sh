#!/bin/sh
# Installs what the named parts need from Debian, and only what is missing.
#
#   sh deploy/system-packages.sh python compiler java maven go node ruby librabbitmq rabbitmq redis-server haproxy rclone chromium systemd iproute2 \
#       prometheus zsh fish ssh strace faketime packages arm64 openssl
#
# Nothing missing: nothing is done, no root needed. Something missing and not root: says what to install, exit 1.
# Services that come with packages are not started (a private broker is started by whoever needs one).
set -eu

PYTHON=${PYTHON:-python3}
missing=""

refuse() {
    echo "$1" >&2
    exit 1
}

# Whether .venv is what make can go on with: it knows the folder that it was made in, and needs the Python that it was made of.
usable_environment() {
    [ ! -e .venv ] || { .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' && grep -qF "$(cd .venv && pwd -P)" .venv/bin/activate; } 2>/dev/null
}

for part in "$@"; do
    case $part in
    python)   usable_environment || refuse ".venv was made in another folder, or by a Python that is gone or older than 3.11: make clean, and run this again."
              "$PYTHON" -c 'import sys; sys.exit(sys.version_info >= (3, 11))' 2>/dev/null &&
                  refuse "$PYTHON is older than Python 3.11: PYTHON=/path/of/one names another."
              "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3 python3-venv" ;;
    compiler) command -v cc >/dev/null || missing="$missing gcc libc6-dev"
              header="$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null || true)/Python.h"
              [ -f "$header" ] || missing="$missing python3-dev" ;;
    java)     javac --version 2>/dev/null | grep -Eq '^javac (1[7-9]|[2-9][0-9])' || missing="$missing openjdk-17-jdk-headless" ;;
    maven)    command -v mvn >/dev/null || missing="$missing maven" ;;
    go)       command -v go >/dev/null || missing="$missing golang-go" ;;
    node)     { command -v node && command -v npm; } >/dev/null || missing="$missing nodejs npm" ;;
    ruby)     ruby -e 'require "bunny"' 2>/dev/null || missing="$missing ruby ruby-bunny" ;;
    librabbitmq) echo '#include <amqp.h>' | cc -E - >/dev/null 2>&1 || missing="$missing librabbitmq-dev" ;;
    rabbitmq) [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing="$missing rabbitmq-server" ;;
    redis-server) command -v redis-server >/dev/null || missing="$missing redis-server" ;;
    chromium) command -v chromium-headless-shell >/dev/null || missing="$missing chromium-headless-shell"
              [ -n "$(fc-list :lang=zh 2>/dev/null)" ] || missing="$missing fontconfig fonts-wqy-microhei" ;; # for pictures of pages in Chinese
    rclone)   command -v rclone >/dev/null || missing="$missing rclone" ;;
    strace)   command -v strace >/dev/null || missing="$missing strace" ;;
    faketime) ls /usr/lib/*/faketime/libfaketimeMT.so.1 >/dev/null 2>&1 || missing="$missing faketime" ;;
    ssh)      command -v ssh >/dev/null || missing="$missing openssh-client" ;;
    haproxy)  command -v haproxy >/dev/null || missing="$missing haproxy" ;;
    iproute2) command -v ip >/dev/null || missing="$missing iproute2" ;;
    prometheus) { command -v prometheus && command -v promtool; } >/dev/null || missing="$missing prometheus"
              command -v prometheus-alertmanager >/dev/null || missing="$missing prometheus-alertmanager" ;;
    openssl)  command -v openssl >/dev/null || missing="$missing openssl" ;;
    packages) for program in mmdebstrap lintian bwrap skopeo umoci buildah pipx curl; do
                  command -v $program >/dev/null || missing="$missing $(echo $program | sed s/bwrap/bubblewrap/)"; done ;;
    arm64)    command -v aarch64-linux-gnu-gcc >/dev/null || missing="$missing gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
              command -v qemu-aarch64-static >/dev/null || missing="$missing qemu-user-static" ;;
    zsh)      command -v zsh >/dev/null || missing="$missing zsh" ;;
    fish)     command -v fish >/dev/null || missing="$missing fish" ;;
    systemd)  command -v systemd-analyze >/dev/null || missing="$missing systemd" ;;
    *)        echo "system-packages.sh: unknown part: $part" >&2; exit 2 ;;
    esac
done

[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "Missing on this machine:$missing" >&2
    echo "Install them (on Debian, as root: apt-get update && apt-get install --no-install-recommends$missing) and run this again." >&2
    exit 1
fi

# Debian asks this file whether a package may start its service. Ours says no, and is taken away again; one that is there is respected.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
fi

log=$(mktemp)
echo "Installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt="apt-get -q -y -o DPkg::Lock::Timeout=600" # a machine that has just started installs its own updates first
# shellcheck disable=SC2086  # a list of words
if ! { $apt update && $apt install --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -n 20 "$log" | sed -E 's#(https?|ftp)://[^ ]*#(package source)#g' >&2
    rm -f "$log"
    echo "apt-get could not install:$missing" >&2
    exit 1
fi
rm -f "$log"
