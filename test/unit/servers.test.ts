import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { connect } from "@nats-io/transport-node";
import { inChrome } from "../support/chrome.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { findProgram } from "../support/process.ts";
import { until } from "../support/until.ts";

let postgres: PostgresServer;
let nats: NatsServer;

beforeAll(async () => {
  [postgres, nats] = await Promise.all([
    startPostgres({ settings: { deadlock_timeout: "77ms" } }),
    startNats(),
  ]);
}, 90_000);
afterAll(async () => {
  await Promise.all([postgres.stop(), nats.stop()]);
  expect(existsSync(postgres.dataDir)).toBe(false);
}, 120_000);

async function ask(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const sql = new Bun.SQL(url, { max: 1 });
  try {
    return await sql.unsafe(statement);
  } finally {
    await sql.close();
  }
}

test("PostgreSQL takes settings and keeps committed rows over restart and kill", async () => {
  expect(await ask(postgres.url, "SHOW deadlock_timeout")).toEqual([{ deadlock_timeout: "77ms" }]);
  expect(await ask(postgres.url, "SHOW max_connections")).toEqual([{ max_connections: "200" }]);
  expect(await ask(postgres.url, "SHOW fsync")).toEqual([{ fsync: "on" }]);
  const url = await postgres.createDatabase();
  await ask(url, "CREATE TABLE kept AS SELECT 7 AS number");
  await postgres.restart();
  expect(await ask(url, "SELECT number FROM kept")).toEqual([{ number: 7 }]);
  await postgres.kill9();
  await postgres.restart();
  expect(await ask(url, "SELECT number FROM kept")).toEqual([{ number: 7 }]);
  await postgres.dropDatabase(url);
  expect(await ask(postgres.url, "SELECT datname FROM pg_database WHERE datname LIKE 'svc%'")).toEqual([]);
}, 90_000);

test("NATS keeps its port over a kill, and forgets its streams only when wiped", async () => {
  const streams = async (create?: string) => {
    const connection = await connect({ servers: nats.url });
    try {
      const wanted = JSON.stringify({ name: create, subjects: [`${create}.>`], storage: "file" });
      const ask = (subject: string, payload?: string) =>
        connection.request(subject, payload, { timeout: 20_000 });
      if (create) await ask(`$JS.API.STREAM.CREATE.${create}`, wanted);
      return (await ask("$JS.API.STREAM.NAMES")).json<{ streams: string[] | null }>().streams ?? [];
    } finally {
      await connection.close();
    }
  };
  expect(await streams("kept")).toEqual(["kept"]);
  await nats.kill9();
  await nats.restart();
  expect(await streams()).toEqual(["kept"]);
  await nats.restart({ wipe: true });
  expect(await streams()).toEqual([]);
}, 90_000);

test("a server ends with the process that started it, even when that one is killed", async () => {
  const source = `
    const { startNats } = await import(${JSON.stringify(new URL("../support/nats.ts", import.meta.url).pathname)});
    const { pid } = await startNats();
    console.log(pid());
    process.kill(process.pid, "SIGKILL");`;
  const child = Bun.spawn([process.execPath, "-e", source], { stdout: "pipe" });
  const pid = Number(await new Response(child.stdout).text());
  expect(pid).toBeGreaterThan(1);
  // A zombie that nobody reaps counts as ended: its command line is empty.
  const ended = async () =>
    !existsSync(`/proc/${pid}`) || (await Bun.file(`/proc/${pid}/cmdline`).text()) === "";
  expect(await until(ended, { about: "the orphaned server to end" })).toBe(true);
}, 120_000);

test("the browser opens a page", async () => {
  const title = await inChrome(async (browser) => {
    const page = await browser.newPage();
    await page.setContent("<title>hello</title>");
    return page.title();
  });
  expect(title).toBe("hello");
}, 300_000);

test("a browser that hangs is replaced, and what fails in one is thrown", async () => {
  let browsers = 0;
  const answer = await inChrome(
    async (browser) => {
      const page = await browser.newPage();
      return ++browsers === 1 ? page.evaluate(() => new Promise<string>(() => {})) : "answered";
    },
    { patienceMs: 5_000 },
  );
  expect([answer, browsers]).toEqual(["answered", 2]);
  await expect(inChrome(() => Promise.reject(new Error("broken")))).rejects.toThrow("broken");
}, 300_000);

test("a missing program names the package to install", () => {
  expect(() => findProgram(["no-such-program"], "some-package")).toThrow("apt-get install some-package");
});

test("until says what it waited for, and why it was not met", async () => {
  const failing = until(() => Promise.reject(new Error("refused")), {
    about: "the moon",
    deadlineMs: 20,
    everyMs: 1,
  });
  const error = await failing.catch((thrown: Error) => thrown);
  expect(error).toMatchObject({
    message: expect.stringMatching(/gave up waiting for the moon after \d+ ms/),
  });
  expect((error as Error).cause).toMatchObject({ message: "refused" });
});
