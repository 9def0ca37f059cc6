import { mkdirSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findNatsServer } from "../../cluster/programs.ts";
import { freePort, lastWordsOf, type RunningProgram, removeFolder, startProgram } from "./process.ts";
import { until } from "./until.ts";

export interface NatsServer {
  url: string;
  port: number;
  pid(): number;
  /** Ends the server and removes its folder. */
  stop(): Promise<void>;
  /** Same port; also brings back a server that was killed. `wipe` forgets all streams and buckets. */
  restart(options?: { wipe?: boolean }): Promise<void>;
  /** Ends the server; `restart` brings it back. */
  shutDown(): Promise<void>;
  kill9(): Promise<void>;
}

export interface NatsOptions {
  /** True when left out. */
  jetstream?: boolean;
  port?: number;
  /** 127.0.0.1 when left out. */
  address?: string;
  /** Further arguments of nats-server. */
  arguments?: readonly string[];
  /** Lines of a configuration file: users, TLS, … */
  config?: string;
}

/** The first line of a server that takes clients. */
function greeting(port: number): Promise<string> {
  return new Promise((done, failed) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("data", (bytes) => {
      socket.destroy();
      done(String(bytes));
    });
    socket.once("error", failed);
    socket.once("close", () => failed(new Error("closed without a greeting")));
  });
}

export const findNats = findNatsServer;

/** A NATS server of its own for one test: loopback only, storage in a temporary folder, gone with this process. */
export async function startNats(options: NatsOptions = {}): Promise<NatsServer> {
  const program = findNats();
  const folder = await mkdtemp(join(tmpdir(), "svc-nats-"));
  const storage = join(folder, "storage");
  let port = options.port ?? (await freePort());
  let server: RunningProgram;

  const launch = async () => {
    mkdirSync(storage, { recursive: true });
    const jetstream = options.jetstream === false ? [] : ["--jetstream", "--store_dir", storage];
    const file = join(folder, "nats.conf");
    const config = options.config === undefined ? [] : ["--config", file];
    if (options.config !== undefined) await Bun.write(file, options.config);
    const place = ["--addr", options.address ?? "127.0.0.1", "--port", String(port)];
    const more = options.arguments ?? [];
    server = startProgram([program, ...config, ...place, ...jetstream, ...more], folder);
    const answers = async () => {
      if (!server.running()) return "gone";
      return (await greeting(port)).startsWith("INFO ") ? "ready" : undefined;
    };
    const state = await until(answers, { about: "NATS to answer", deadlineMs: 30_000, everyMs: 20 });
    if (state === "gone") server.release();
    return state === "ready";
  };
  const end = async (signal: NodeJS.Signals) => {
    if (server.running()) server.signal(signal);
    await server.exited;
    server.release();
  };

  // Someone may take the port between the probe and the start.
  for (let attempt = 1; !(await launch()); attempt++) {
    if (attempt === 3 || options.port) throw new Error(`NATS does not start:\n${await lastWordsOf(folder)}`);
    port = await freePort();
  }
  return {
    url: `nats://127.0.0.1:${port}`,
    port,
    pid: () => server.pid,
    async stop() {
      await end("SIGTERM");
      await removeFolder(folder);
    },
    shutDown: () => end("SIGTERM"),
    async restart({ wipe = false } = {}) {
      await end("SIGTERM");
      if (wipe) await removeFolder(storage);
      for (let attempt = 1; !(await launch()); attempt++)
        if (attempt === 3) throw new Error(`NATS does not start again:\n${await lastWordsOf(folder)}`);
    },
    kill9: () => end("SIGKILL"),
  };
}

export interface NatsCluster {
  /** All servers, for a client's list. */
  url: string;
  servers: NatsServer[];
  stop(): Promise<void>;
}

/** Servers that know each other, with JetStream in each: what a company runs. */
export async function startNatsCluster(count = 3): Promise<NatsCluster> {
  const routes = await Promise.all(Array.from({ length: count }, freePort));
  const servers = await Promise.all(
    routes.map((port, place) =>
      startNats({
        arguments: [
          ...["--name", `nats-${place + 1}`, "--cluster_name", "svc-cluster"],
          ...["--cluster", `nats://127.0.0.1:${port}`],
          ...["--routes", routes.map((route) => `nats://127.0.0.1:${route}`).join()],
        ],
      }),
    ),
  );
  return {
    url: servers.map((server) => server.url).join(),
    servers,
    stop: async () => void (await Promise.all(servers.map((server) => server.stop()))),
  };
}

let shared: Promise<{ url: string }> | undefined;

/** The one server of a test run: that of SVC_TEST_NATS_URL, else one that the first caller starts; see sharedPostgres. */
export function sharedNats(): Promise<{ url: string }> {
  const given = process.env.SVC_TEST_NATS_URL;
  shared ??= given
    ? Promise.resolve({ url: given })
    : startNats().then(({ url }) => {
        process.env.SVC_TEST_NATS_URL = url;
        return { url };
      });
  return shared;
}
