import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { connect as connectH2 } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import {
  createAccount,
  createOperator,
  createUser,
  encodeAccount,
  encodeOperator,
  encodeUser,
  fmtCreds,
} from "@nats-io/jwt";
import { giveToServerUser } from "../../cluster/programs.ts";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { type Authority, makeAuthority } from "../support/certificates.ts";
import { startNats } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { freePort, removeFolder } from "../support/process.ts";
import { makeHomeAt, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

let authority: Authority;
let stranger: Authority;
beforeAll(async () => {
  [authority, stranger] = await Promise.all([makeAuthority(), makeAuthority()]);
});
afterAll(() => Promise.all([authority.remove(), stranger.remove()]));

describe("TLS on both ports", () => {
  let server: TestServer;
  beforeAll(async () => {
    const { certFile: tlsCertFile, keyFile: tlsKeyFile } = authority;
    const grpcPort = await freePort();
    server = await startTestServer({ engine: "libsql", settings: { tlsCertFile, tlsKeyFile, grpcPort } });
  });
  afterAll(() => server.stop());

  const ask = (path: string, ca: string) =>
    fetch(`${server.url}${path}`, {
      headers: { authorization: `Bearer ${server.adminKey}` },
      tls: { ca },
    } as RequestInit);

  test("HTTPS answers who knows the authority, and nobody in cleartext", async () => {
    expect(server.url).toStartWith("https://");
    expect((await ask("/health", authority.ca)).status).toBe(200);
    await expect(ask("/health", stranger.ca)).rejects.toThrow();
    await expect(fetch(server.url.replace("https", "http"))).rejects.toThrow();
  });

  test("HTTP/2 by ALPN", async () => {
    const session = connectH2(server.url, { ca: authority.ca });
    const stream = session.request({ ":path": "/health" });
    const head = await new Promise<Record<string, unknown>>((done, failed) => {
      stream.on("response", done);
      session.on("error", failed);
    });
    expect(head[":status"]).toBe(200);
    session.destroy();
  });

  test("old TLS is refused", async () => {
    const { hostname, port } = new URL(server.url);
    const outcome = await new Promise<string>((done) => {
      const options = {
        host: hostname,
        port: Number(port),
        ca: authority.ca,
        maxVersion: "TLSv1.1" as const,
      };
      const socket = connectTls({ ...options, minVersion: "TLSv1" }, () => done("connected"));
      socket.on("error", () => done("refused"));
    });
    expect(outcome).toBe("refused");
  });

  test("gRPC over TLS", async () => {
    const baseUrl = `https://127.0.0.1:${server.running.grpcPort}`;
    const client = (ca: string) =>
      createClient(SvcService, createGrpcTransport({ baseUrl, nodeOptions: { ca } }));
    expect((await client(authority.ca).health({})).status).toBe("healthy");
    const refused = await client(stranger.ca)
      .health({})
      .catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(ConnectError);
  });

  test("files that are missing are named by their setting", async () => {
    const settings = { tlsCertFile: "/nowhere/cert.pem", tlsKeyFile: authority.keyFile };
    const failed = startTestServer({ engine: "libsql", settings });
    await expect(failed).rejects.toThrow("SVC_TLS_CERT_FILE: /nowhere/cert.pem cannot be read (ENOENT)");
  });
});

describe("PostgreSQL over TLS", () => {
  test("the server is believed with our authority only", async () => {
    const postgres = await startPostgres({
      prepare(dataDir) {
        for (const [from, name] of [
          [authority.certFile, "server.pem"],
          [authority.keyFile, "server.key"],
        ] as const) {
          copyFileSync(from, join(dataDir, name));
          giveToServerUser(join(dataDir, name), "postgresql");
        }
      },
      settings: { ssl: "on", ssl_cert_file: "server.pem", ssl_key_file: "server.key" },
    });
    try {
      const home = await makeHomeAt(await postgres.createDatabase());
      const start = (databaseTlsCaFile: string) =>
        startTestServer({ engine: "postgres", home, settings: { databaseTlsCaFile } });
      await expect(start(stranger.caFile)).rejects.toThrow("database");
      const server = await start(authority.caFile);
      const { store } = server.running.domain;
      const mine = await store.one(sql`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`);
      expect(mine).toEqual({ ssl: true });
      await server.stop();
      await home.remove();
    } finally {
      await postgres.stop();
    }
  }, 30_000);
});

describe("NATS over TLS, with a user", () => {
  test("connects with user and authority; without either it goes on alone and tells nobody the password", async () => {
    const password = "correct-horse-battery";
    const nats = await startNats({
      arguments: [
        ...["--tls", "--tlscert", authority.certFile, "--tlskey", authority.keyFile],
        ...["--user", "svc", "--pass", password],
      ],
    });
    const lines: string[] = [];
    const note = (event: string, fields?: object) => void lines.push(`${event} ${JSON.stringify(fields)}`);
    const log = { ...silentLog, info: note, warn: note, error: note, debug: note };
    const url = (text: string) => `nats://svc:${text}@127.0.0.1:${nats.port}`;
    const start = (natsUrl: string, natsTlsCaFile: string) =>
      startTestServer({ engine: "libsql", log, settings: { natsUrl, natsTlsCaFile } });
    const isReady = async (server: TestServer) => (await server.api("/ready")).status === 200;
    try {
      const server = await start(url(password), authority.caFile);
      await until(() => isReady(server), { about: "the bus", deadlineMs: 5_000, everyMs: 20 });
      await server.stop();
      for (const [natsUrl, ca] of [
        [url("wrong-horse-battery"), authority.caFile],
        [url(password), stranger.caFile],
      ] as const) {
        const alone = await start(natsUrl, ca);
        expect(await isReady(alone)).toBe(false);
        expect((await alone.rpc("SvcService", "Emit", { event: "goes.on", data: {} })).status).toBe(200);
        expect(await isReady(alone)).toBe(false);
        await alone.stop();
      }
      expect(lines.join("\n")).not.toContain("horse");
    } finally {
      await nats.stop();
    }
  }, 30_000);
});

describe("NATS with credentials of its own kind", () => {
  test("a JWT and its seed in a file let the node in, and nobody else", async () => {
    const [operator, account, user] = [createOperator(), createAccount(), createUser()];
    const operatorJwt = await encodeOperator("svc", operator);
    const accountJwt = await encodeAccount(
      "nodes",
      account,
      { limits: { conn: -1, subs: -1, data: -1, payload: -1 } },
      { signer: operator },
    );
    const creds = fmtCreds(await encodeUser("node", user, account), user);
    const folder = await mkdtemp(join(tmpdir(), "svc-creds-"));
    const natsCredsFile = join(folder, "node.creds");
    await Bun.write(natsCredsFile, creds);
    await Bun.write(
      join(folder, "nats.conf"),
      `operator: ${operatorJwt}\nresolver: MEMORY\nresolver_preload: { ${account.getPublicKey()}: ${accountJwt} }\n`,
    );
    const nats = await startNats({ jetstream: false, arguments: ["--config", join(folder, "nats.conf")] });
    const ready = async (settings: { natsCredsFile?: string }) => {
      const server = await startTestServer({ engine: "libsql", nats: nats.url, settings });
      const answer = await until(async () => (await server.api("/ready")).status === 200 && "ready", {
        about: "the bus",
        deadlineMs: settings.natsCredsFile ? 5_000 : 1_000,
        everyMs: 20,
      }).catch(() => "alone");
      await server.stop();
      return answer;
    };
    try {
      expect(await ready({ natsCredsFile })).toBe("ready");
      expect(await ready({})).toBe("alone");
    } finally {
      await nats.stop();
      await removeFolder(folder);
    }
  }, 30_000);
});
