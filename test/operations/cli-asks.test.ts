import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Cli, type CliOptions, makeCli } from "../support/cli.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let cli: Cli;
beforeAll(async () => {
  server = await startTestServer({ engine: "libsql" });
  cli = makeCli({ SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey });
}, 120_000);
afterAll(async () => {
  cli.remove();
  await server.stop();
});

const svc = (line: string, options?: CliOptions) => cli.run(line.split(" "), options);
const unasked = (question: string) => ({
  ...{ code: 2, err: `svc: ${question} There is no terminal to ask: say --yes\n` },
});

test("a key is deleted by --yes, or by what a person says", async () => {
  expect((await svc("kv create asked")).code).toBe(0);
  expect((await svc("kv put asked a --value one")).code).toBe(0);
  expect(await svc("kv delete asked a")).toMatchObject(unasked("Delete key a of asked?"));
  expect((await svc("kv delete asked a", { types: ["n"] })).code).toBe(1);
  expect((await svc("kv get asked a")).code).toBe(0);
  expect((await svc("kv delete asked a", { types: ["y"] })).code).toBe(0);
  expect((await svc("kv get asked a")).code).toBe(1);
  expect((await svc("kv delete asked a --yes")).err).not.toContain("terminal");
});

test("a rule is made unasked, and replaced by --yes or by what a person says", async () => {
  const targets = '[{"type":"slack","url":"https://slack.example.test/asked"}]';
  const put = `alert rule put asked --condition dead_letter --targets ${targets}`;
  expect((await svc(put)).code).toBe(0);
  expect(await svc(put)).toMatchObject(unasked("Replace alert rule asked?"));
  expect((await svc(put, { types: ["y"] })).code).toBe(0);
  expect((await svc(`${put} --yes`)).code).toBe(0);
});

test("a profile is kept unasked, and replaced by --yes or by what a person says", async () => {
  const add = "profile add home --server http://127.0.0.1:1";
  const kept = () => readFileSync(join(cli.folder, ".config/svc/profiles.json"), "utf8");
  expect((await svc(add)).code).toBe(0);
  expect(await svc(`${add}2`)).toMatchObject(unasked("Replace profile home?"));
  expect(kept()).toContain('"http://127.0.0.1:1"');
  expect((await svc(`${add}3`, { types: ["y"] })).code).toBe(0);
  expect((await svc(`${add}4 --yes`)).code).toBe(0);
  expect(kept()).toContain('"http://127.0.0.1:14"');
});

test("an output that is injected must be said", async () => {
  expect(await svc("run inject run_1 step_1")).toMatchObject({
    ...{ code: 2, err: expect.stringContaining("--output is needed") },
  });
});
