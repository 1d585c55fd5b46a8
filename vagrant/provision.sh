#!/bin/bash
# Makes a machine on which switchsum runs on real BMv2 in Mininet. Root, Ubuntu; `vagrant up` calls it.
#
#   provision.sh                all steps, in this order
#   provision.sh STEP...        system, p4lang, switchsum, tests; each may be repeated
#
# P4LANG=home:/p4lang:/latest   another project of p4lang's on the Open Build Service
set -euo pipefail

clone=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
owner=$(stat --format %U "$clone")
export DEBIAN_FRONTEND=noninteractive

main() {
  [ "$(id -u)" -eq 0 ] || fail "this installs packages: run it as root"
  [ $# -gt 0 ] || set -- system p4lang switchsum tests
  local step
  for step in "$@"; do
    case $step in
      system | p4lang | switchsum | tests) printf '\n== %s\n' "$step" && "install_$step" ;;
      *) fail "no such step: $step (system, p4lang, switchsum, tests)" ;;
    esac
  done
}

fail() {
  printf 'provision.sh: %s\n' "$*" >&2
  exit 1
}

install() { apt-get install --quiet --yes --no-install-recommends "$@"; }

# The distribution's own Python where that is new enough, else the newer one that it also has (Ubuntu 22.04).
python() {
  if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then echo python3; else echo python3.11; fi
}

install_system() {
  apt-get update --quiet
  install ca-certificates curl gnupg python3
  install git make "$(python)" "$(python)-venv"
  # setuptools: distutils, which Mininet imports and Python 3.12 has no more
  install mininet python3-setuptools iproute2 iputils-ping ethtool tcpdump util-linux
}

# p4lang's published packages; nothing is built here.
install_p4lang() {
  local address package keyring=/usr/share/keyrings/p4lang.gpg list=/etc/apt/sources.list.d/p4lang.list
  # shellcheck source=/dev/null
  . /etc/os-release
  [ "$ID" = ubuntu ] || fail "p4lang publishes packages for Ubuntu, and this is $PRETTY_NAME"
  address=https://download.opensuse.org/repositories/${P4LANG:-home:/p4lang}/xUbuntu_$VERSION_ID
  curl --fail --silent --show-error --location "$address/Release.key" | gpg --dearmor --yes --output "$keyring" ||
    fail "there are no packages of p4lang's for Ubuntu $VERSION_ID at $address: UBUNTU=22.04 has some"
  echo "deb [signed-by=$keyring] $address/ /" >"$list"
  apt-get update --quiet
  for package in p4lang-p4c p4lang-bmv2; do
    if ! apt-cache show "$package" >/dev/null 2>&1; then
      rm "$list"
      fail "p4lang publishes no $package for Ubuntu $VERSION_ID at $address: UBUNTU=22.04 has one"
    fi
  done
  install p4lang-p4c p4lang-bmv2
  p4c-bm2-ss --version
  simple_switch_grpc --version
}

install_switchsum() {
  runuser --user "$owner" -- make --directory "$clone" PYTHON="$(python)" .venv/installed
  runuser --user "$owner" -- "$clone/.venv/bin/switchsum" doctor
}

# What an ordinary machine leaves out: real BMv2, and Mininet.
install_tests() {
  command -v simple_switch_grpc >/dev/null || fail "no simple_switch_grpc on PATH: provision.sh p4lang"
  make --directory "$clone" test ARGS="-m 'bmv2 or mininet' -p no:cacheprovider"
}

main "$@"
