import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { findOperation } from "../../src/cli/operations.ts";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { furnish } from "../../src/domain/access/tenancy/furnish.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { sql } from "../../src/kit/sql.ts";
import { answerSchemas } from "../support/answer-schemas.ts";
import { type Cli, type CliOptions, makeCli } from "../support/cli.ts";
import { runOnce } from "../support/one-run.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** Words, what people are shown, and the operation whose schema `--json` keeps. */
type Row = [words: string, shown: RegExp, operation?: string];

describe.each(engines)("the command line on %s", (engine) => {
  let server: TestServer;
  let cli: Cli;
  let runId: string;
  let failedId: string;
  let check: ReturnType<typeof answerSchemas>;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    cli = makeCli({ SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey }, { rawCommands });
    runId = (await runOnce(server, "told", { status: "completed", output: { n: 1 } })).runId;
    const error = { message: "no such card", code: "CARD", retryable: false };
    failedId = (await runOnce(server, "broken", { status: "failed", error })).runId;
    await server.api("/api/v1/kv/buckets", { body: { name: "box" } });
    await server.api("/api/v1/kv/buckets/box/keys/a%2Fb", { method: "PUT", body: "one" });
    const placed = { entityId: "order-2", entityType: "order", eventName: "placed", data: { n: 1 } };
    await server.rpc("EntityStreamService", "AppendEvent", placed);
    check = answerSchemas((await server.api("/openapi.json")).body);
  }, 120_000);
  afterAll(async () => {
    cli?.remove();
    await server?.stop();
  });

  const svc = (line: string, options?: CliOptions) => cli.run(line.split(" "), options);

  test("commands that are calls: tables for people, JSON that keeps the operation's schema", async () => {
    const rows: Row[] = [
      ["runs", /^ID +FUNCTION ID +STATUS/, "runs.list"],
      ["run list --status failed --function broken --limit 5", /broken +failed/, "runs.list"],
      [`run ${runId}`, /completed/, "runs.get"],
      [`run steps ${runId}`, /none/, "runs.steps"],
      [`inspect ${runId}`, /TIMESTAMP +EVENT TYPE|none/, "timetravel.timeline"],
      ["function list", /told +active/, "functions.list"],
      ["function get told", /^id +told/, "functions.get"],
      ["function pause told", /paused/, "functions.setStatus"],
      ["function activate told", /active/, "functions.setStatus"],
      ["function history told", /ENTITY VERSION/, "functions.history"],
      ["worker list", /worker-of-told/, "workers.list"],
      ['emit made.up --data {"n":1} --metadata by=ada --version 1', /eventId +evt_/, "events.emit"],
      ["event list --limit 3", /made\.up/, "events.list"],
      ["event names", /made\.up/, "events.names"],
      [
        'stream append order-1 --type order --event placed --data {"n":1} --expected-version 0',
        /entityVersion +1/,
        "streams.append",
      ],
      ["stream append order-1 --event placed --type order --data {} --expected-version -1", /entityVersion/],
      ["stream read order-1", /placed/, "streams.read"],
      ["stream info order-1", /order-1/, "streams.get"],
      ["stream list", /order-1/, "streams.list"],
      ['topic publish news --data {"n":1}', /eventId/, "topics.publish"],
      ["topic list", /news/, "topics.list"],
      ["group create crew made.>", /crew/, "groups.create"],
      ["group list", /crew/, "groups.list"],
      ["projection list", /counts +sql/, "projections.list"],
      ["kv create crate", /crate/, "kv.buckets.create"],
      ["kv put crate a/b --value one", /revision +1/, "kv.put"],
      ["kv get crate a/b", /value +one/, "kv.get"],
      ["kv get crate a/b --raw", /^one$/],
      ["kv keys crate", /a\/b/, "kv.keys.list"],
      ['config put theme --data {"dark":true}', /theme|revision/, "config.put"],
      ["config get theme", /dark/, "config.get"],
      ["secret list", /none/, "secrets.list"],
      ["webhook list", /none/, "webhooks.list"],
      ["breaker list", /none/, "breakers.list"],
      ["debounce list", /none/, "debounce.list"],
      ["outbox dlq list --env env_default", /none/, "outbox.deadLetters"],
      ["project list", /Default/, "projects.list"],
      ["env list", /default/, "environments.list"],
      ["org list", /org_default/, "orgs.list"],
      ["apikey list", /admin/i, "keys.list"],
      ["role list", /admin/, "roles.list"],
      ["policy list", /none/, "policies.list"],
      ["policy template list", /ID/, "policyTemplates.list"],
      ["audit trail", /ID|none/, "audit.trail"],
      ["repair list", /none/, "repairs.list"],
      ["retention get", /days|event/, "retention.get"],
      ["server info", /version/, "server.capabilities"],
      ["server overview", /uptime_seconds/, "overview.get"],
      ["cluster health", /healthy/, "cluster.health"],
      [`event cause run ${runId}`, /DEPTH/, "causality.get"],
      [`call runs.get --id ${runId}`, /completed/, "runs.get"],
    ];
    writeFileSync(join(cli.folder, "counts.sql"), "CREATE TABLE proj_counts (id text PRIMARY KEY)");
    const handler = "placed=INSERT INTO proj_counts (id) VALUES (:data.id) ON CONFLICT (id) DO NOTHING";
    const words = ["projection", "create", "counts", "--sql-file", "counts.sql", "--event-handler", handler];
    expect(await cli.run(words)).toMatchObject({ code: 0, err: "" });
    for (const [line, shown, operation] of rows) {
      const told = await svc(line);
      expect({ line, ...told }).toEqual({
        line,
        code: 0,
        err: expect.any(String),
        out: expect.stringMatching(shown),
      });
      if (operation === undefined || !findOperation(operation)!.reads) continue;
      const { code, out } = await svc(`${line} --json`);
      expect({ line, code, wrong: check(findOperation(operation)!, JSON.parse(out)) }).toEqual({
        line,
        code: 0,
        wrong: undefined,
      });
    }
  }, 120_000);

  test("waits, SQL, pages, secrets, exports and what destroys", async () => {
    expect((await svc("emit nobody.listens")).err).toMatch(
      /it started no run: .* nobody\.listens; svc function list/,
    );
    const emitted = await svc("emit nobody.listens --wait --json");
    expect([emitted.code, JSON.parse(emitted.out).results ?? []]).toEqual([0, []]);
    const late = await svc("invoke broken --timeout 1300ms");
    expect(late.status).toEqual(expect.arrayContaining([expect.stringMatching(/^waiting \d+ s$/)]));
    expect([late.code, late.err]).toEqual([
      1,
      expect.stringMatching(/run_\w+ is waiting_for_capacity: svc why run_/),
    ]);
    expect((await cli.run(["sql", "SELECT 1 AS one, NULL AS two", "--format", "csv"])).out).toBe(
      "one,two\r\n1,\r\n",
    );
    const rows = (await cli.run(["sql", "SELECT 1 AS one, NULL AS two", "--jsonl"])).out;
    expect(JSON.parse(rows)).toEqual({ one: "1", two: null });
    const first = await svc("event list --limit 1");
    expect(first.err).toMatch(/there are more: --cursor \S+, or --all/);
    const all = (await svc("event list --limit 1 --jsonl --all")).out.trim().split("\n");
    expect(all.length).toBeGreaterThan(2);
    for (const name of ["one", "two"])
      await server.rpc("ProjectionService", "RegisterProjection", { name, events: ["nobody.listens"] });
    const page = await svc("projection list --limit 1");
    expect(page.err).toMatch(/there are more, 3 in all: --offset 1, or --limit/);
    expect((await svc("projection list --limit 2 --offset 1")).err).toBe("");

    const made = await svc("secret set card --json", { input: "hush-hush\n" });
    expect([made.code, made.out.includes("hush")]).toEqual([0, false]);
    expect((await svc("secret set card", { types: ["other"] })).code).toBe(0);
    const refused = await svc("secret delete card");
    expect(refused).toEqual({
      code: 2,
      out: "",
      err: "svc: Delete secret card? There is no terminal to ask: say --yes\n",
    });
    expect((await svc("secret delete card", { types: ["n"] })).code).toBe(1);
    expect((await svc("secret delete card", { types: ["y"] })).code).toBe(0);
    expect((await svc("secret delete card --yes")).code).toBe(1);

    const exported = await svc("export --file all.ndjson");
    expect([exported.code, exported.err]).toEqual([
      0,
      expect.stringMatching(/all\.ndjson: \d+ lines, whole/),
    ]);
    expect(readFileSync(join(cli.folder, "all.ndjson"), "utf8")).not.toContain(server.adminKey);
    expect((await svc("export --file all.ndjson")).err).toContain("exists");
    const cut = await svc("export --file cut.ndjson", { isInterrupted: true });
    expect([cut.code, existsSync(join(cli.folder, "cut.ndjson"))]).toEqual([130, false]);
    const followed = await svc("stream subscribe order-2 --after 0 --count 1 --json");
    expect([followed.code, JSON.parse(followed.out).topic]).toEqual([0, "entity:order.order-2.placed"]);

    const watched = await svc("runs --watch 0.2 --jsonl", { onOut: (_text, stop) => stop() });
    expect([watched.code, watched.out.includes(runId)]).toEqual([0, true]);
    const caught = await svc("kv watch box", { onOut: (_text, stop) => stop() });
    expect([caught.code, JSON.parse(caught.out.split("\n")[0]!).key]).toEqual([0, "a/b"]);
  }, 120_000);

  test("why: what failed, what waits, and the next command", async () => {
    const failed = await svc(`why ${failedId}`);
    expect(failed.out).toContain("attempt 1 of 3 on deployment build-7 failed: no such card (CARD)");
    expect(failed.out).toContain(`svc resume ${failedId}`);
    await server.rpc("SvcService", "RegisterFunction", { id: "lonely" });
    const invoked = JSON.parse((await svc("invoke lonely --no-wait --json")).out).runId;
    expect((await svc(`why ${invoked}`)).out).toMatch(/none of \d connected workers serves lonely/);
    await svc("function pause lonely");
    expect(JSON.parse((await svc(`why ${invoked} --json`)).out)).toMatchObject({
      status: "waiting_for_capacity",
      next: ["svc function activate lonely"],
    });
    expect((await svc(`cancel ${invoked} --reason late`)).code).toBe(0);
    expect((await svc(`why ${invoked}`)).out).toContain("it was cancelled");
  }, 120_000);

  test("bad input: an exit code, one line, nothing done", async () => {
    const other = await server.api("/api/v1/environments", { body: { name: `far-${engine}` } });
    expect(other.status).toBe(201);
    // A server of a version without the method.
    const older = Bun.serve({
      port: 0,
      fetch: () => Response.json({ code: "unimplemented", message: "no such method" }, { status: 501 }),
    });
    const cases: [string, number, RegExp, CliOptions?][] = [
      ["functoin list", 2, /^svc: unknown command functoin, did you mean function\? see: svc help\n$/],
      ["run lsit", 2, /^svc: unknown command run lsit, did you mean list\? see: svc run --help\n$/],
      ["run", 2, /^svc: a command is needed: list, get, .*; see: svc run --help\n$/],
      [
        "run list --staus failed",
        2,
        /^svc: --staus: unknown flag, did you mean --status\? see: svc run list --help\n$/,
      ],
      ["run list --status borken", 2, /^svc: --status: must be one of running, /],
      ["run list --limit many", 2, /^svc: --limit: must be a whole number, not many\n$/],
      ["run list --json --jsonl", 2, /choose one/],
      ["run get", 2, /missing required argument/],
      ["emit a --data {", 2, /^svc: --data: must be JSON/],
      ["emit a --data @nowhere.json", 2, /nowhere\.json cannot be read: ENOENT/],
      ["emit a..b", 2, /empty/],
      ["emit a --wait --delay-ms 5000", 2, /^svc: --delay-ms and --wait: choose one\n$/],
      ["call runs.gte", 2, /did you mean runs\.get\?/],
      ["call workers.connect", 2, /both directions/],
      ["call workers.register --worker-id w", 2, /--function-ids is needed/],
      ["call streams.delete --entity-id order-1", 2, /say --yes/],
      ["run run_nobody", 1, /^svc: run run_nobody not found\n$/],
      ["runs --env nowhere", 1, /no environment named nowhere/],
      ["runs --env env_nowhere", 2, /^svc: unknown environment: svc env list/],
      ["runs --profile nowhere", 2, /there is no profile nowhere/],
      ["runs --key-file nowhere", 2, /nowhere cannot be read: ENOENT/],
      ["runs", 1, /^svc: Invalid API key: set SVC_API_KEY/, { environment: { SVC_API_KEY: "ifkey_nobody" } }],
      [`runs --server ${older.url.origin}`, 1, /: the server may be of another version .*; svc doctor\n$/],
      [`runs --server http://127.0.0.1:${await freePort()}`, 3, /does not answer.*svc doctor/],
      ["runs --server ::", 2, /--server: must be a URL/],
      ["completion tcsh", 2, /one of bash, zsh, fish/],
    ];
    for (const [line, code, said, options] of cases) {
      const told = await svc(line, options);
      expect({ line, ...told }).toEqual({ line, code, out: "", err: expect.stringMatching(said) });
      expect(told.err.split("\n")).toHaveLength(2);
      expect(told.err).not.toContain(server.adminKey);
    }
    older.stop(true);
    writeFileSync(join(cli.folder, "binary"), new Uint8Array([0, 255, 254, 1]));
    expect((await svc("emit a --data-file binary")).err).toMatch(/binary is not UTF-8 text/);
    const binary = new Uint8Array([0, 255, 254, 1]);
    expect((await svc("emit a --data -", { input: binary })).err).toContain(
      "standard input is not UTF-8 text",
    );
    expect((await svc("kv put box raw --value -", { input: binary })).code).toBe(0);
    const kept = JSON.parse((await svc("kv get box raw --json")).out).value;
    expect([...Buffer.from(kept, "base64")]).toEqual([...binary]);
  }, 120_000);

  test("profiles: kept for their owner alone, chosen, overruled, and refused when they are broken", async () => {
    const own = makeCli({}, { rawCommands });
    const say = (line: string, options?: CliOptions) => own.run(line.split(" "), options);
    try {
      const added = await say(`profile add home --server ${server.url} --with-key`, {
        input: `${server.adminKey}\n`,
      });
      expect(added).toMatchObject({ code: 0, out: "" });
      const file = join(own.folder, ".config/svc/profiles.json");
      expect(statSync(file).mode & 0o777).toBe(0o600);
      expect((await say("runs --json")).code).toBe(0);
      const tailed = await say("tail told.asked --profile home --after 0 --count 1 --json");
      expect([tailed.code, JSON.parse(tailed.out).topic]).toEqual([0, "events:told.asked"]);
      expect((await say(`tail told.asked -s http://127.0.0.1:${await freePort()}`)).code).toBe(3);
      const listed = await say("profile list --json");
      expect([listed.out.includes(server.adminKey), JSON.parse(listed.out)[0].chosen]).toEqual([false, true]);
      await say("profile add away --server http://127.0.0.1:1");
      expect((await say("runs --profile away")).code).toBe(3);
      expect((await say("profile use away")).code).toBe(0);
      expect(
        (await say("runs", { environment: { SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey } }))
          .code,
      ).toBe(0);
      chmodSync(file, 0o644);
      expect(await say("runs")).toMatchObject({ code: 2, err: expect.stringContaining("chmod 600") });
      writeFileSync(file, "{", { mode: 0o600 });
      chmodSync(file, 0o600);
      expect(await say("runs")).toMatchObject({ code: 2, err: expect.stringMatching(/is not JSON/) });
      expect(await say("tail a")).toMatchObject({ code: 2, err: expect.stringMatching(/is not JSON/) });
      writeFileSync(file, '{"profiles":{"a":{"sevrer":"x"}}}');
      expect(await say("runs")).toMatchObject({
        code: 2,
        err: expect.stringContaining("/profiles/a/sevrer"),
      });
    } finally {
      own.remove();
    }
  }, 120_000);

  test("a platform user logs in, and acts in a tenant's org", async () => {
    const own = makeCli({ SVC_SERVER_URL: server.url });
    const say = (line: string, options?: CliOptions) => own.run(line.split(" "), options);
    try {
      const admin = "platform create-admin --email root@svc.test --name Root --password";
      const seen = await svc(`${admin} long-enough-1`);
      expect(seen).toMatchObject({
        code: 2,
        err: expect.stringContaining("others on this machine see arguments"),
      });
      expect((await svc(`${admin} -`, { input: "long-enough-1\n" })).code).toBe(0);
      const wrong = await say("platform login --email root@svc.test", { input: "wrong" });
      expect([wrong.code, wrong.out, wrong.err]).toEqual([1, "", "svc: Invalid email or password\n"]);
      const login = await say("platform login --email root@svc.test", { types: ["long-enough-1"] });
      expect([login.code, login.out, login.err.includes("eyJ")]).toEqual([0, "", false]);
      expect((await say("platform tenants list")).out).toContain("org_default");
      expect((await say("runs")).code).toBe(1);
      expect((await say("runs --as-org org_default --env default")).out).toContain(runId);
      expect((await say("runs --as-org org_nobody")).code).toBe(1);
      const far = await say("runs --as-org org_default --env nowhere");
      expect(far).toMatchObject({ code: 1, err: "svc: there is no environment named nowhere\n" });
    } finally {
      own.remove();
    }
  }, 120_000);

  test("organizations of a config file are made once, by nodes that start at once", async () => {
    const { store } = server.running.domain;
    const clock = systemClock();
    const deps = { store, clock, ids: systemIds(clock) };
    const shop = { name: "Shop", environments: [{ name: "live" }, { name: "test" }] };
    const wanted = [{ name: "Acme", projects: [shop, { ...shop, environments: [] }] }];
    await Promise.all([furnish(deps, wanted), furnish(deps, wanted)]);
    await furnish(deps, wanted);
    const counts = await store.one<{ orgs: number; projects: number; environments: number }>(sql`SELECT
      (SELECT count(*) FROM orgs WHERE name = 'Acme') AS orgs,
      (SELECT count(*) FROM projects WHERE name = 'Shop') AS projects,
      (SELECT count(*) FROM environments e JOIN orgs o ON o.id = e.org_id WHERE o.name = 'Acme') AS environments`);
    expect(counts).toEqual({ orgs: 1, projects: 1, environments: 2 });
    const bad = [{ name: "Half", projects: [{ name: "One", environments: [{ name: "a b" }] }] }];
    await expect(furnish(deps, bad)).rejects.toThrow(/name/);
    expect(await store.one(sql`SELECT id FROM orgs WHERE name = 'Half'`)).toBeUndefined();
  });

  test("who watches a repair or a rebuild sees how far it is", async () => {
    const words = ["repair", "start", "--action", "resume", "--filter", '{"functionId":"broken"}', "--yes"];
    const { id } = JSON.parse((await cli.run([...words, "--json"])).out);
    const isOver = async () => JSON.parse((await svc(`repair get ${id} --json`)).out).status === "completed";
    await until(isOver, { about: "the repair" });
    expect((await svc("projection rebuild start counts --yes")).code).toBe(0);
    const barOf = async (line: string) =>
      (await svc(`${line} --watch 0.2`, { onOut: (_text, stop) => stop() })).status?.at(-1);
    expect(await barOf(`repair get ${id}`)).toMatch(/^\[#{20}\] 100 % {2}1 of 1 runs$/);
    expect(await barOf("projection rebuild status counts")).toMatch(/ % {2}\d+ of \d+ events$/);
  }, 120_000);

  test("doctor says what is well and what to do", async () => {
    const well = await svc("doctor --json");
    const { findings } = JSON.parse(well.out) as { findings: { check: string; state: string }[] };
    expect(findings.filter(({ state }) => state === "bad")).toEqual([]);
    expect(findings.map(({ check }) => check)).toEqual(
      expect.arrayContaining(["server", "version", "clock", "key", "nodes", "store", "bus", "permissions"]),
    );
    const stray = { function_ids: ["nowhere-to-be-found"], clock_ms: Date.now() - 600_000 };
    await server.api("/api/v1/workers/stray/register", { body: stray });
    const told = (await svc("doctor")).out;
    expect(told).toMatch(/workers +warning +clocks differ from the server's: stray is \d{6} ms behind/);
    expect(told).toMatch(/workers: set their clocks by NTP/);
    expect(told).toMatch(/asks for functions that are not registered: .*nowhere-to-be-found/);
    expect(told).toMatch(/workers: register them: svc function register/);
    // A server of another version whose clock is an hour behind.
    const old = {
      status: "healthy",
      version: "0.1.0",
      timestamp: new Date(Date.now() - 3_600_000).toISOString(),
    };
    const other = Bun.serve({
      port: 0,
      fetch: ({ url }) =>
        new URL(url).pathname === "/health"
          ? Response.json(old)
          : Response.json({ error: "no", code: "unauthenticated", message: "no" }, { status: 401 }),
    });
    const far = (await svc(`doctor --server ${other.url.origin}`)).out;
    other.stop(true);
    expect(far).toMatch(/version +warning +the server is 0\.1\.0/);
    expect(far).toMatch(/version: use the command of the server's version/);
    expect(far).toMatch(/clock +warning +3[56]\d{5} ms ahead of the server's/);
    expect(far).toMatch(/clock: set this machine's clock by NTP/);
    const place: Record<string, string> =
      engine === "postgres"
        ? { SVC_DATABASE_URL: server.home.place.databaseUrl! }
        : { SVC_DB: server.home.place.db };
    const local = await svc("doctor", {
      environment: { ...place, NATS_URL: `nats://127.0.0.1:${await freePort()}` },
    });
    expect(local.out).toMatch(engine === "postgres" ? /durability/ : /GB free at/);
    expect(local.out).toMatch(/NATS +bad/);
    expect(local.code).toBe(1);
    const wrong = await svc("doctor", { environment: { SVC_API_KEY: "ifkey_nobody" } });
    expect([wrong.code, wrong.out]).toEqual([1, expect.stringMatching(/key: set SVC_API_KEY/)]);
    expect((await svc(`doctor --server http://127.0.0.1:${await freePort()}`)).code).toBe(3);
    expect(existsSync(join(cli.folder, ".svc"))).toBe(false);
  }, 120_000);
});
