#!/bin/sh
# Debian 12's Python for arm64 with its headers and libraries, unpacked in a folder. Nothing is installed.
#
#   sh deploy/packaging/arm64.sh build/arm64
#
# An apt of its own reads the packages from where this machine's apt has Debian from, and checks their signatures as always. Wheels are
# compiled with FOLDER/root's headers, and qemu-aarch64-static -L FOLDER/root runs its Python. 26 MB; a folder that is complete is kept.
set -eu
folder=${1:?usage: arm64.sh FOLDER}

[ -f "$folder/version" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/apt/parts" "$folder/root"
folder=$(cd "$folder" && pwd)

debian=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian //p' | head -n 1)
[ -n "$debian" ] || { echo "arm64.sh: this machine's apt knows no Debian mirror: run apt-get update" >&2; exit 1; }
echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $debian bookworm main" > "$folder/apt/sources.list"
: > "$folder/apt/status"  # nothing is there yet

apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Dir::State::Lists="$folder/apt/lists" \
        -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt/cache" -o Dir::Etc::SourceList="$folder/apt/sources.list" \
        -o Dir::Etc::SourceParts="$folder/apt/parts" -o APT::Install-Recommends=false -o Acquire::Languages=none "$@"
}
apt update
apt install --download-only --yes python3.11 libpython3.11-dev > /dev/null
for package in "$folder"/apt/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder/root"
done
version=$(dpkg-deb --field "$folder"/apt/cache/archives/python3.11_*.deb Version)
rm -rf "$folder/apt"
echo "$version" > "$folder/version"
