#!/bin/sh
# RabbitMQ 4 for the tests: Debian's packages of a newer suite, with all they need, unpacked in a folder. Nothing is installed.
#
#   sh tests/support/brokers/rabbitmq4.sh build/rabbitmq4-trixie trixie [fetched|installed]
#
# An apt of its own reads the suite, from where this machine's apt has Debian from, and checks its signatures as always. FOLDER/root/usr then
# stands in for /usr in a mount namespace (tests/support/brokers/rabbitmq.py). 80 MB to download; a folder that is complete is kept. The one line
# on stdout is the folder. Where it cannot be had, or not be run here, this says so and ends with 1; with `installed` the line is empty then, and
# the exit code 0: the tests run on the RabbitMQ that is installed, and whoever reads the log sees it.
set -eu
folder=${1:?usage: rabbitmq4.sh FOLDER SUITE [fetched|installed]}
suite=${2:?usage: rabbitmq4.sh FOLDER SUITE [fetched|installed]}
otherwise=${3:-fetched}
ATTEMPTS=3  # a mirror that is just being renewed answers with files that do not fit together

without() {
    if [ "$otherwise" = installed ]; then
        echo "RABBITMQ 4 IS NOT TESTED, Debian's own older one is: $1" >&2
        echo
        exit 0
    fi
    echo "RabbitMQ 4 of Debian's suite $suite is not to be had: $1. Try again, or test with Debian 12's own: make test RABBITMQ=3" >&2
    exit 1
}

mirror() { apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1; }

apt() {
    apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Dir::State::Lists="$folder/apt/lists" -o Dir::State::status="$folder/apt/status" \
        -o Dir::Cache="$folder/apt/cache" -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts="$folder/apt/parts" \
        -o APT::Install-Recommends=false -o Acquire::Languages=none "$@" >&2
}

# What its scripts and the wrappers around it call, beside what it depends on.
packages() {
    apt update && apt install --download-only --yes rabbitmq-server erlang-base base-files bash coreutils dash findutils gawk grep hostname mount \
        procps sed util-linux
}

fetch() {
    rm -rf "$folder"
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/apt/parts" "$folder/root"
    debian=$(mirror)
    if [ -z "$debian" ]; then  # an image that has thrown its lists away does not know the labels
        apt-get -qq update >&2 || true
        debian=$(mirror)
    fi
    [ -n "$debian" ] || without "this machine's apt knows no Debian mirror, not even after apt-get update"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian $suite main" > "$folder/apt/sources.list"
    : > "$folder/apt/status"  # nothing is there yet: whatever RabbitMQ needs is taken from the suite
    attempt=1
    until packages; do
        [ $attempt -lt $ATTEMPTS ] || without "apt says why above, $ATTEMPTS times"
        attempt=$((attempt + 1))
        sleep 10
    done
    for package in "$folder"/apt/cache/archives/base-files_*.deb "$folder"/apt/cache/archives/*.deb; do
        dpkg-deb --extract "$package" "$folder/root"
    done
    for name in awk nawk; do
        [ -e "$folder/root/usr/bin/$name" ] || ln -s gawk "$folder/root/usr/bin/$name"
    done
    version=$(dpkg-deb --field "$folder"/apt/cache/archives/rabbitmq-server_*.deb Version)
    rm -rf "$folder/apt"
    echo "$version" > "$folder/version"
}

# As tests/support/brokers/rabbitmq.py runs it.
runs() {
    as_root=--map-root-user
    [ "$(id -u)" != 0 ] || as_root=
    unshare $as_root --mount -- sh -c 'mount --bind "$0/root/usr" /usr && exec erl -noshell -eval "halt()."' "$folder" >&2
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ ! -f "$folder/version" ]; then
    fetch
fi
said=$(runs 2>&1) || without "it does not run in a mount namespace here: $said"
echo "$folder"
