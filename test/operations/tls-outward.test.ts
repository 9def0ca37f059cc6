import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  createAccount,
  createOperator,
  createUser,
  encodeAccount,
  encodeOperator,
  encodeUser,
  fmtCreds,
} from "@nats-io/jwt";
import type { Log } from "../../src/kit/log.ts";
import { redactFields } from "../../src/kit/redact.ts";
import { type Authority, makeAuthority } from "../support/certificates.ts";
import { startNats } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { makeHome, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

let ours: Authority;
let theirs: Authority;
beforeAll(async () => {
  [ours, theirs] = await Promise.all([makeAuthority(), makeAuthority()]);
});
afterAll(() => Promise.all([ours.remove(), theirs.remove()]));

function listener() {
  const lines: string[] = [];
  const line = (event: string, fields?: Record<string, unknown>) =>
    void lines.push(`${event} ${JSON.stringify(redactFields(fields ?? {}))}`);
  return { lines, log: { debug: line, info: line, warn: line, error: line } satisfies Log };
}

describe("PostgreSQL", () => {
  test("with its CA it is spoken to over TLS; another CA, another name or no TLS is refused", async () => {
    const names = ["IP:127.0.0.1"];
    const server = await startPostgres({ tls: await ours.issue("database", names) });
    const stranger = await startPostgres({ tls: await ours.issue("stranger", ["DNS:elsewhere"]) });
    const clear = await startPostgres();
    const home = await makeHome("libsql");
    const start = (databaseUrl: string, databaseTlsCaFile: string) =>
      startTestServer({ engine: "postgres", home, settings: { databaseUrl, databaseTlsCaFile } });
    const refusal = (url: string, caFile: string) =>
      start(url, caFile).then(
        async (running) => {
          await running.stop();
          return "started";
        },
        (error) => `${error.name}: ${error.message}`,
      );
    try {
      const url = await server.createDatabase();
      const running = await start(url, ours.caFile);
      const { store } = running.running.domain;
      const rows = await store.all<{ ssl: boolean }>({
        strings: [
          "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'svc'",
        ],
        values: [],
      });
      expect(rows.length).toBeGreaterThan(0);
      expect(rows.every(({ ssl }) => ssl)).toBe(true);
      expect((await running.api("/health")).status).toBe(200);
      await running.stop();

      const refused = "StartFailure: the database cannot be reached: ";
      const wrongCa = await refusal(url, theirs.caFile);
      const wrongName = await refusal(await stranger.createDatabase(), ours.caFile);
      const noTls = await refusal(await clear.createDatabase(), ours.caFile);
      for (const said of [wrongCa, wrongName, noTls]) expect(said).toStartWith(refused);
    } finally {
      await Promise.all([server.stop(), stranger.stop(), clear.stop()]);
      await home.remove();
    }
  }, 120_000);
});

describe("NATS", () => {
  const tlsBlock = (certFile: string, keyFile: string, verify = false) =>
    `tls { cert_file: "${certFile}", key_file: "${keyFile}"${verify ? `, ca_file: "${ours.caFile}", verify: true` : ""} }\n`;
  const at = (url: string, user: string, scheme = "nats") => url.replace("nats://", `${scheme}://${user}@`);

  const readiness = async (server: Awaited<ReturnType<typeof startTestServer>>) =>
    (await server.api("/ready")).status;

  test("user, password and TLS with its CA; a client certificate where the bus wants one", async () => {
    const pair = await ours.issue("bus", ["IP:127.0.0.1", "DNS:localhost"]);
    const mine = await ours.issue("node", ["DNS:node"]);
    const bus = await startNats({
      jetstream: false,
      config: `${tlsBlock(pair.certFile, pair.keyFile, true)}authorization { user: svc, password: "p4ss:12@word" }\n`,
    });
    const url = at(bus.url, `svc:${encodeURIComponent("p4ss:12@word")}`, "tls");
    const { lines, log } = listener();
    const certificate = { natsTlsCertFile: mine.certFile, natsTlsKeyFile: mine.keyFile };
    const server = await startTestServer({
      engine: "libsql",
      nats: url,
      settings: { natsTlsCaFile: ours.caFile, ...certificate },
      log,
    });
    const wrongCa = await startTestServer({
      engine: "libsql",
      nats: url,
      settings: { natsTlsCaFile: theirs.caFile, ...certificate },
      log,
    });
    try {
      await until(async () => (await readiness(server)) === 200, { about: "the bus to be connected" });
      await until(() => lines.some((line) => line.startsWith("bus.unreachable")), { about: "the refusal" });
      expect(await readiness(wrongCa)).toBe(503);
      expect(lines.join("\n")).not.toContain("p4ss");
    } finally {
      await Promise.all([server.stop(), wrongCa.stop()]);
      await bus.stop();
    }
  }, 120_000);

  test("a wrong password: the node goes on without the bus, says so, and joins when it is set right", async () => {
    const config = (password: string) => `authorization { user: svc, password: "${password}" }\n`;
    let bus = await startNats({ jetstream: false, config: config("right") });
    const { lines, log } = listener();
    const server = await startTestServer({ engine: "libsql", nats: at(bus.url, "svc:hush"), log });
    try {
      await until(() => lines.some((line) => line.startsWith("bus.unreachable")), { about: "the refusal" });
      expect(await readiness(server)).toBe(503);
      expect((await server.api("/health")).status).toBe(200);
      expect(lines.join("\n")).toContain("Authorization Violation");
      await bus.stop();
      bus = await startNats({ jetstream: false, port: bus.port, config: config("hush") });
      await until(async () => (await readiness(server)) === 200, { about: "the bus to be connected" });
      expect(lines.join("\n")).not.toContain("hush");
    } finally {
      await server.stop();
      await bus.stop();
    }
  }, 120_000);

  test("a token", async () => {
    const bus = await startNats({ jetstream: false, config: 'authorization { token: "t0ken" }\n' });
    const server = await startTestServer({ engine: "libsql", nats: at(bus.url, "t0ken") });
    try {
      await until(async () => (await readiness(server)) === 200, { about: "the bus to be connected" });
    } finally {
      await server.stop();
      await bus.stop();
    }
  }, 120_000);

  test("tls:// without TLS at the other end sends no password", async () => {
    const bus = await startNats({
      jetstream: false,
      config: 'authorization { user: svc, password: "right" }\n',
    });
    const { lines, log } = listener();
    const server = await startTestServer({ engine: "libsql", nats: at(bus.url, "svc:right", "tls"), log });
    try {
      await until(() => lines.some((line) => line.startsWith("bus.unreachable")), { about: "the refusal" });
      expect(await readiness(server)).toBe(503);
    } finally {
      await server.stop();
      await bus.stop();
    }
  }, 120_000);

  test("a credentials file, renewed while the node runs", async () => {
    const [operator, account, user, stranger] = [
      createOperator(),
      createAccount(),
      createUser(),
      createUser(),
    ];
    const limits = { conn: -1, subs: -1, data: -1, payload: -1 };
    const accountToken = await encodeAccount("svc", account, { limits }, { signer: operator });
    const bus = await startNats({
      jetstream: false,
      config: [
        `operator: ${await encodeOperator("test", operator)}`,
        "resolver: MEMORY",
        `resolver_preload: { ${account.getPublicKey()}: ${accountToken} }`,
      ].join("\n"),
    });
    const file = join(ours.folder, "node.creds");
    // A seed that does not belong to the token first, then the right one.
    const token = await encodeUser("node", user, account);
    await writeFile(file, fmtCreds(token, stranger));
    const { lines, log } = listener();
    const settings = { natsCredsFile: file };
    const server = await startTestServer({ engine: "libsql", nats: bus.url, settings, log });
    try {
      await until(() => lines.some((line) => line.startsWith("bus.unreachable")), { about: "the refusal" });
      await writeFile(file, fmtCreds(token, user));
      await until(async () => (await readiness(server)) === 200, { about: "the bus to be connected" });
      for (const secret of [user, stranger].map((one) => new TextDecoder().decode(one.getSeed()))) {
        expect(lines.join("\n")).not.toContain(secret);
      }
      expect(lines.join("\n")).not.toContain(token);
    } finally {
      await server.stop();
      await bus.stop();
    }
  }, 120_000);
});
