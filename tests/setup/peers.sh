#!/bin/sh
# peers.sh: install what the tests talk to and PyPI does not have: other versions of PostgreSQL,
# among them Debian's, since it alone compiles expressions; no cluster of it is made or started;
# and the TypeScript client of the same database. Needs npm, which root gets installed, as are
# systemd, which judges our units, with dbus, by which root alone talks to a systemd of its own,
# and iproute2, with which root alone makes the machines of tests/machines. Completion is tested
# in the shells that are there, bash in any case; root gets zsh and fish installed. Patroni with etcd
# and pgbouncer are those of tests/support; no service of theirs is started.
# Prometheus with promtool reads our metrics and alerts. nginx stands before the dashboard. Chromium shows the dashboard. strace shows what a daemon opens.
# man and mandoc read the manual pages.
# debootstrap makes the Debian of root's tests of package and image, buildah the image, runc its containers.
# docker-compose judges compose.yaml, without an engine.
set -eu
cd "$(dirname "$0")/../npm"

install() {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"
}

install_stopped() { # a package's service is not started where this file says no
    refusal=/usr/sbin/policy-rc.d
    if [ -e $refusal ]; then
        install "$@"
    else
        printf '#!/bin/sh\nexit 101\n' >$refusal
        chmod +x $refusal
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        install "$@"
        rm $refusal
    fi
}

if [ "$(id -u)" = 0 ] && ! command -v bridge >/dev/null; then
    if ! command -v apt-get >/dev/null; then
        echo "root's tests of several machines need ip and bridge; install iproute2" >&2
        exit 1
    fi
    install iproute2
fi
if [ "$(id -u)" = 0 ] && ! { command -v debootstrap && command -v buildah && command -v runc; } >/dev/null; then
    if ! command -v apt-get >/dev/null; then
        echo "root's tests of the image need buildah, debootstrap and runc; install them" >&2
        exit 1
    fi
    install buildah debootstrap runc
fi
if ! command -v systemd-analyze >/dev/null ||
    { [ "$(id -u)" = 0 ] && ! command -v dbus-daemon >/dev/null; }; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install systemd dbus
    else
        echo "the tests of our units need systemd; run: sudo apt-get install systemd dbus" >&2
        exit 1
    fi
fi
if ! { command -v man && command -v mandoc; } >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install man-db mandoc
    else
        echo "the tests of the manual pages need man and mandoc; run: sudo apt-get install man-db mandoc" >&2
        exit 1
    fi
fi
if ! command -v docker-compose >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install docker-compose
    else
        echo "the tests read compose.yaml; run: sudo apt-get install docker-compose" >&2
        exit 1
    fi
fi
if ! command -v strace >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install strace
    else
        echo "a test of what is opened needs strace; run: sudo apt-get install strace" >&2
        exit 1
    fi
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null &&
    ! { command -v zsh && command -v fish; } >/dev/null; then
    install zsh fish
fi
if ! ls /usr/lib/postgresql/*/lib/llvmjit.so >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install postgresql-common
        mkdir -p /etc/postgresql-common/createcluster.d
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/none.conf
        install postgresql
    else
        echo "the tests need a PostgreSQL with JIT; run: sudo apt-get install postgresql" >&2
        exit 1
    fi
fi
if ! { command -v patroni && command -v etcd && test -x /usr/sbin/pgbouncer; } >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install_stopped patroni etcd-server pgbouncer
    else
        echo "the tests need Patroni, etcd and pgbouncer; run:" >&2
        echo "sudo apt-get install patroni etcd-server pgbouncer" >&2
        exit 1
    fi
fi
if ! { command -v prometheus && command -v promtool; } >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install_stopped prometheus
    else
        echo "the tests need Prometheus; run: sudo apt-get install prometheus" >&2
        exit 1
    fi
fi
if ! command -v chromium >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install chromium fonts-dejavu-core
    else
        echo "the tests of the dashboard need Chromium; run:" >&2
        echo "sudo apt-get install chromium fonts-dejavu-core" >&2
        exit 1
    fi
fi
if ! command -v nginx >/dev/null && ! test -x /usr/sbin/nginx; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install_stopped nginx-light
    else
        echo "the tests need nginx; run: sudo apt-get install nginx-light" >&2
        exit 1
    fi
fi
if ! command -v npm >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install nodejs npm
    else
        echo "the tests need Node.js and npm; run: sudo apt-get install nodejs npm" >&2
        exit 1
    fi
fi
npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
for package in node_modules/pg1[0-9]; do
    (cd "$package" && node scripts/hydrate-symlinks.js)  # npm packages carry no links
done
