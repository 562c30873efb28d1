#!/bin/sh
# RabbitMQ 4 for the tests: Debian's packages of a newer suite, with all they need, unpacked in a folder. Nothing is installed.
#
#   sh tests/support/brokers/rabbitmq4.sh build/rabbitmq4-trixie trixie
#
# An apt of its own reads the suite, from where this machine's apt has Debian from, and checks its signatures as always. FOLDER/root/usr then
# stands in for /usr in a mount namespace (tests/support/brokers/rabbitmq.py). 80 MB to download; a folder that is complete is kept.
set -eu
folder=${1:?usage: rabbitmq4.sh FOLDER SUITE}
suite=${2:?usage: rabbitmq4.sh FOLDER SUITE}

[ -f "$folder/version" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/apt/parts" "$folder/root"
folder=$(cd "$folder" && pwd)

mirror() { apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1; }
debian=$(mirror)
if [ -z "$debian" ]; then  # an image that has thrown its lists away does not know the labels
    apt-get -qq update >&2 || true
    debian=$(mirror)
fi
unreachable() {
    echo "RabbitMQ 4 could not be fetched from Debian's suite $suite: $1. Try again, or test with Debian 12's own: make test RABBITMQ=3" >&2
    exit 1
}
[ -n "$debian" ] || unreachable "this machine's apt knows no Debian mirror, not even after apt-get update"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian $suite main" > "$folder/apt/sources.list"
: > "$folder/apt/status"  # nothing is there yet: whatever RabbitMQ needs is taken from the suite

apt() {
    apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Dir::State::Lists="$folder/apt/lists" -o Dir::State::status="$folder/apt/status" \
        -o Dir::Cache="$folder/apt/cache" -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts="$folder/apt/parts" \
        -o APT::Install-Recommends=false -o Acquire::Languages=none "$@"
}
apt update || unreachable "apt says why above"
# What its scripts and the wrappers around it call, beside what it depends on.
apt install --download-only --yes rabbitmq-server erlang-base base-files bash coreutils dash findutils gawk grep hostname mount procps sed util-linux > /dev/null || unreachable "apt says why above"
for package in "$folder"/apt/cache/archives/base-files_*.deb "$folder"/apt/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder/root"
done
for name in awk nawk; do
    [ -e "$folder/root/usr/bin/$name" ] || ln -s gawk "$folder/root/usr/bin/$name"
done
version=$(dpkg-deb --field "$folder"/apt/cache/archives/rabbitmq-server_*.deb Version)
rm -rf "$folder/apt"
echo "$version" > "$folder/version"
