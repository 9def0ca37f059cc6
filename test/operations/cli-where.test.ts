import { afterAll, beforeAll, expect, test } from "bun:test";
import { type Cli, makeCli } from "../support/cli.ts";
import { runOnce } from "../support/one-run.ts";
import { startTestServer, type TestServer } from "../support/server.ts";

let server: TestServer;
let cli: Cli;
beforeAll(async () => {
  server = await startTestServer({ engine: "libsql" });
  cli = makeCli({ SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey });
}, 60_000);
afterAll(async () => {
  cli?.remove();
  await server?.stop();
});

test("runs are found by their attributes, each read as its name's type, and one that has some is shown whole", async () => {
  await server.rpc("SvcService", "RegisterFunction", {
    ...{ id: "ordered", triggers: [{ event: "order.made" }] },
    attributes: [
      { name: "orderId", path: "orderId" },
      { name: "total", path: "total", type: "number" },
    ],
  });
  const made: string[] = [];
  for (const data of [
    { orderId: "22", total: 7 },
    { orderId: "L23", total: 120 },
  ])
    made.push((await server.rpc("SvcService", "Emit", { event: "order.made", data })).body.runIds[0]);
  const found = async (...conditions: string[]) => {
    const { out } = await cli.run(["runs", "--jsonl", ...conditions.flatMap((one) => ["--where", one])]);
    return out.split("\n").flatMap((line) => (line === "" ? [] : (JSON.parse(line).id as string)));
  };
  expect(await found("orderId=22")).toEqual([made[0]!]);
  expect(await found("total>=100")).toEqual([made[1]!]);
  expect(await found("total<100", "orderId=22")).toEqual([made[0]!]);
  expect(await found("total<100", "orderId=L23")).toEqual([]);
  for (const wrong of ["orderId", "total=many"]) {
    const { code, err } = await cli.run(["runs", "--where", wrong]);
    expect([wrong, code]).toEqual([wrong, 2]);
    expect(err).toContain("--where");
  }
  const { out } = await cli.run(["run", made[1]!]);
  for (const line of [/^status +waiting_for_capacity/m, /^functionId +ordered/m, /orderId/])
    expect(out).toMatch(line);
});

test("why names the step to begin again at: by its id where others have its name, and as plain text", async () => {
  const step = (id: string, name: string, status: string) => ({
    ...{ id, name, type: "invoke", status },
    ...(status === "failed" ? { error: { message: "declined" } } : { output: 1 }),
  });
  const whyOf = async (name: string, steps: object[]) => {
    const report = { status: "failed", error: { message: "declined", retryable: false }, steps };
    const { runId, answer } = await runOnce(server, name, report);
    expect(answer.body).toEqual({ status: "ok" });
    return (await cli.run(["why", runId])).out;
  };
  const twice = [step("a:charge:0", "charge", "completed"), step("a:charge:1", "charge", "failed")];
  expect(await whyOf("twice", twice)).toContain("--from-step a:charge:1\n");
  expect(await whyOf("once", [step("a:charge:0", "charge", "failed")])).toContain("--from-step charge\n");
  const rude = await whyOf("rude", [step("a:rude:0", "it's \u001b[2J rude", "failed")]);
  expect(rude).toContain("--from-step 'it'\\''s ");
  expect(rude).not.toContain("\u001b[2J");
});

test("runs that are paused are listed with why, and found by it", async () => {
  const until = new Date(Date.now() + 600_000).toISOString();
  const sleep = (name: string) => ({ step_id: `${name}:nap:0`, type: "sleep", until });
  const [asleep, held] = await Promise.all(
    ["naps", "stopped"].map((name) => runOnce(server, name, { status: "yielded", yield: sleep(name) })),
  );
  await server.rpc("SvcService", "PauseRun", { runId: held!.runId });
  const { out } = await cli.run(["runs", "--status", "paused"]);
  expect(out).toMatch(new RegExp(`^${asleep!.runId} +naps +sleeping `, "m"));
  expect(out).toMatch(new RegExp(`^${held!.runId} +stopped +held `, "m"));
  expect((await cli.run(["run", "list", "--paused", "held", "--jsonl"])).out).toContain(held!.runId);
  expect((await cli.run(["run", "list", "--paused", "held", "--jsonl"])).out).not.toContain(asleep!.runId);
  const wrong = await cli.run(["runs", "--paused", "asleep"]);
  expect([wrong.code, wrong.err]).toEqual([2, expect.stringContaining("--paused: must be one of sleeping")]);
});

test("a name stands for the id of what has it, and for none of two", async () => {
  const made = await cli.run(["apikey", "create", "clerk", "--role-ids", "viewer", "--json"]);
  const { id } = JSON.parse(made.out);
  expect(JSON.parse((await cli.run(["apikey", "get", "clerk", "--json"])).out)).toMatchObject({ id });
  expect(
    (await cli.run(["apikey", "create", "brief", "--role-ids", "viewer", "--expires-in", "30d"])).code,
  ).toBe(0);
  expect((await cli.run(["apikey", "list"])).out).toMatch(
    /LAST USED AT[\s\S]*clerk +ifkey_\S+ +role_viewer /,
  );
  const [, twin] = await Promise.all(
    ["other", "clerk"].map((name) => cli.run(["apikey", "create", name, "--role-ids", "viewer", "--json"])),
  );
  const both = await cli.run(["apikey", "delete", "clerk", "--yes"]);
  expect(both.code).toBe(2);
  for (const one of [id, JSON.parse(twin!.out).id]) expect(both.err).toContain(one);
  expect((await cli.run(["apikey", "delete", "other", "--yes"])).code).toBe(0);
  const none = await cli.run(["apikey", "get", "other"]);
  expect([none.code, none.err]).toEqual([1, expect.stringContaining("other")]);
});

test("a refusal names the flag that was typed", async () => {
  const { code, err } = await cli.run(["apikey", "create", "some", "--role-ids", "nobody"]);
  expect([code, err]).toEqual([2, "svc: --role-ids: role nobody not found\n"]);
});

test("lists without items are lists", async () => {
  const asked = { name: "quiet", eventPrefix: "quiet", preset: "generic-hmac", verifySecret: "both know it" };
  expect((await server.rpc("WebhookService", "CreateWebhookSource", asked)).status).toBe(200);
  for (const [words, field] of [
    [["webhook", "deliveries", "quiet"], "deliveries"],
    [["runs", "--function", "nobody"], "runs"],
  ] as const)
    expect(JSON.parse((await cli.run([...words, "--json"])).out)).toMatchObject({ [field]: [] });
});

test("what is read is said again when it is another, whatever the command makes of the answer", async () => {
  const { runId } = await runOnce(server, "watched", { status: "completed", output: 1 });
  await server.api("/api/v1/kv/buckets", { body: { name: "seen" } });
  await server.api("/api/v1/kv/buckets/seen/keys/a", { method: "PUT", body: "one" });
  const lines: [words: string[], changes: () => Promise<unknown>][] = [
    [
      ["kv", "get", "seen", "a"],
      () => server.api("/api/v1/kv/buckets/seen/keys/a", { method: "PUT", body: "two" }),
    ],
    [
      ["sql", "SELECT count(*) AS n FROM events"],
      () => server.rpc("SvcService", "Emit", { event: "seen.more" }),
    ],
  ];
  for (const [words, change] of lines) {
    let isChanged = false;
    const { code, out } = await cli.run([...words, "--jsonl", "--watch", "0.2"], {
      onOut(text, stop) {
        if (text.trim().split("\n").length > 1) stop();
        if (!isChanged) void change();
        isChanged = true;
      },
    });
    expect([words[0], code, new Set(out.trim().split("\n")).size]).toEqual([words[0], 0, 2]);
  }
  for (const words of [["usage"], ["inspect", runId]]) {
    const { code, err } = await cli.run([...words, "--watch", "0.2"], { onOut: (_text, stop) => stop() });
    expect([code, err]).toEqual([0, ""]);
  }
  expect((await cli.run(["sql", "SELECT 1 AS one", "--timeout", "4s"])).code).toBe(0);
  const raw = await cli.run(["kv", "get", "seen", "a", "--raw", "--watch"]);
  expect([raw.code, raw.err]).toEqual([2, "svc: --raw and --watch: choose one\n"]);
});

test("a run is called by one word, a secret is no argument, and a token is not replaced unasked", async () => {
  const { runs } = JSON.parse((await cli.run(["runs", "--paused", "held", "--json"])).out);
  expect((await cli.run(["why", runs[0].id])).out).toContain(`${runs[0].id} is held`);
  const issuer = ["issuer", "create", "Ours", "--issuer", "https://login.example.com", "--client-id", "svc"];
  const shown = await cli.run([...issuer, "--client-secret", "hush-hush"]);
  expect([shown.code, shown.err]).toEqual([
    2,
    expect.stringContaining("--client-secret: others on this machine"),
  ]);
  const made = await cli.run([...issuer, "--client-secret", "-", "--json"], { input: "hush-hush\n" });
  expect([made.code, JSON.parse(made.out).has_secret]).toEqual([0, true]);
  const { id } = JSON.parse((await cli.run(["webhook", "create", "--event-prefix", "hub", "--json"])).out);
  const asked = await cli.run(["webhook", "rotate-token", id]);
  expect([asked.code, asked.err]).toEqual([2, expect.stringContaining("ends at once")]);
  const own = makeCli({ SVC_API_KEY: server.adminKey });
  try {
    const { host } = new URL(server.url);
    expect((await own.run(["profile", "add", "near", "--server", host])).code).toBe(0);
    expect((await own.run(["runs", "--profile", "near"])).code).toBe(0);
  } finally {
    own.remove();
  }
});

test("lists of functions and workers say which event starts what, and who serves it", async () => {
  const triggers = [{ event: "cart.left", expression: "data.total > 1" }, { cron: "0 9 * * *" }];
  await server.rpc("SvcService", "RegisterFunction", { id: "remind", triggers });
  expect((await cli.run(["function", "list"])).out).toMatch(
    /^remind +active +1 +cart\.left \(if\), 0 9 \* \* \* /m,
  );
  expect((await cli.run(["worker", "list"])).out).toMatch(/^worker-of-watched\S* +watched /m);
});

test("a word that is neither on nor off switches nothing, and what lacks its flag is not asked for", async () => {
  const cases: [line: string, code: number, said: string][] = [
    ["issuer passwords on", 0, ""],
    ["issuer passwords sure", 2, "passwords: must be on or off, not sure"],
    ["function rollback watched", 2, "--to is needed"],
    ["outbox dlq list", 2, "--env: is required"],
  ];
  for (const [line, code, said] of cases) {
    const told = await cli.run(line.split(" "));
    expect([line, told.code, told.err]).toEqual([line, code, expect.stringContaining(said)]);
  }
  const cut = await cli.run(["export"], { onOut: (_text, stop) => stop() });
  expect([cut.code, cut.err]).toEqual([130, "svc: interrupted\n"]);
});
