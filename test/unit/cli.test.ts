import { describe, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import packageFile from "../../package.json" with { type: "json" };
import { readConfig } from "../../src/cli/config-file.ts";
import { readField } from "../../src/cli/fields.ts";
import { choiceOf, flagOf, operations, shortWords } from "../../src/cli/operations.ts";
import { barOf, rebuildBar, repairBar } from "../../src/cli/progress.ts";
import { rawCommands } from "../../src/cli/raw-commands.ts";
import { commandAt } from "../../src/cli/run.ts";
import { serveArguments } from "../../src/cli/serve-arguments.ts";
import { cellOf, localTime, paintOf, shown, tableOf } from "../../src/cli/show.ts";
import { prettyLine } from "../../src/cli/tail.ts";
import { version } from "../../src/kit/version.ts";
import { makeCli } from "../support/cli.ts";
import { casesElsewhere, cliCases } from "../support/cli-cases.ts";
import { allCommands, commandsPath, freshCommandsPage, wholeProgram } from "../support/commands.ts";

test("the page has every command (`bun run refresh` writes it)", async () => {
  expect(await freshCommandsPage()).toBe(await Bun.file(commandsPath).text());
});

const testFile = (name: string) => join(import.meta.dir, "..", `${name}.test.ts`);

test("every command has a line in the table, or a test of its own", () => {
  const program = wholeProgram();
  const tried = new Set(cliCases.map(({ line }) => commandAt(program, line.split(" ")).path.join(" ")));
  const names = allCommands(program).map(({ name }) => name);
  expect(names.filter((name) => !tried.has(name) && !(name in casesElsewhere))).toEqual([]);
  expect(Object.values(casesElsewhere).filter((file) => !existsSync(testFile(file)))).toEqual([]);
  expect(Object.keys(casesElsewhere).filter((name) => tried.has(name) || !names.includes(name))).toEqual([]);
});

describe("words of the command line", () => {
  test("a day, or a time as lists show it, is read by this machine's zone", async () => {
    const field = { kind: "text", required: false, about: "", place: "body" } as const;
    const read = (text: string, name = "since") =>
      readField({ ...field, name }, text, `--${name}`, {} as never);
    const local = new Date(2026, 10, 27, 5, 0, 7).toISOString();
    expect(await read("2026-11-27 05:00:07")).toBe(local);
    expect(await read(localTime(local))).toBe(local);
    expect(await read("2026-11-27T05:00", "until")).toBe(new Date(2026, 10, 27, 5).toISOString());
    expect(await read("2026-11-27", "fromTimestamp")).toBe(new Date(2026, 10, 27).toISOString());
    // A day of UTC is the same day everywhere.
    const ofUtc = { ...field, name: "from", about: "The first day, of UTC." };
    expect(await readField(ofUtc, "2026-11-27", "--from", {} as never)).toBe("2026-11-27");
    for (const text of ["2026-02-30", "2026-11-27 05:00:61", "2026-11-27T05:00:00Z", "yesterday"])
      expect(await read(text)).toBe(text);
    expect(await read("2026-11-27", "search")).toBe("2026-11-27");
  });

  test("a list of nothing is an empty list to programs", () => {
    const json = (answer: unknown, items?: string) =>
      JSON.parse(shown(answer, "json", { io: {} as never, ...(items !== undefined && { items }) }));
    expect([json({}, "runs"), json(undefined, "runs")]).toEqual([{ runs: [] }, { runs: [] }]);
    expect(json({ runs: [{ id: "a" }], totalCount: 1 }, "runs")).toEqual({
      runs: [{ id: "a" }],
      totalCount: 1,
    });
    expect([json({}, ""), json({}), json([], "runs")]).toEqual([{}, {}, []]);
    expect(shown({}, "jsonl", { io: {} as never, items: "runs" })).toBe("");
  });

  test("flags and choices are what people type", () => {
    expect([flagOf("fromStep"), flagOf("from_step"), flagOf("eventID")]).toEqual([
      "from-step",
      "from-step",
      "event-id",
    ]);
    const words = ["RUN_STATUS_RUNNING", "RUN_STATUS_WAITING_FOR_CAPACITY"];
    expect(shortWords(words)).toEqual(["running", "waiting_for_capacity"]);
    expect([
      choiceOf(words, "waiting-for-capacity"),
      choiceOf(words, "RUN_STATUS_RUNNING"),
      choiceOf(words, "x"),
    ]).toEqual(["RUN_STATUS_WAITING_FOR_CAPACITY", "RUN_STATUS_RUNNING", undefined]);
  });

  test("what strangers wrote does not steer a terminal, and a row fits it", () => {
    expect(cellOf("a\u001b]0;title\u0007\nb")).toBe("a\\u001b]0;title\\u0007\u21b5b");
    expect(prettyLine(false)({ topic: "a", data: "\u009b2J" })).toBe('--:--:--.---  a  "\\u009b2J"');
    const io = { isTerminal: true, columns: 30, environment: {} } as never;
    const lines = tableOf([{ id: "x".repeat(60), status: "RUN_STATUS_FAILED" }], {
      io,
      paint: paintOf(io),
    }).split("\n");
    expect(lines[1]!.replaceAll(/\u001b\[\d+m/g, "").length).toBeLessThanOrEqual(30);
    expect(lines[1]).toContain("\u001b[31mfailed");
    expect(barOf(10, 40, "lines")).toBe("[#####---------------]  25 %  10 of 40 lines");
    const piped = { isTerminal: false, columns: 30, environment: {} } as never;
    expect(tableOf([{ id: "x".repeat(60) }], { io: piped, paint: paintOf(piped) })).toBe(
      `ID\n${"x".repeat(60)}\n`,
    );
  });

  test("how far a rebuild and a repair are", () => {
    expect(rebuildBar({ job: { eventsProcessed: "1", totalEvents: "4" } })).toContain(" 25 %  1 of 4 events");
    expect(rebuildBar({ job: { totalEvents: "4" } })).toContain("  0 %  0 of 4 events");
    expect([rebuildBar({}), rebuildBar({ job: {} })]).toEqual([undefined, undefined]);
    const counts = { pending: "5", done: "2", failed: "1" };
    expect(repairBar({ phase: "work", counts })).toContain(" 37 %  3 of 8 runs");
    expect([repairBar({ phase: "select", counts }), repairBar({ phase: "work" })]).toEqual([
      undefined,
      undefined,
    ]);
    const window = { fromPosition: "101", toPosition: "200" };
    expect(repairBar({ phase: "select", position: "150", ...window })).toContain(" 50 %  50 of 100 events");
    expect(repairBar({ phase: "select", ...window })).toContain("  0 %  0 of 100 events");
  });

  test("every operation is a command, with help of its fields; words are completed", async () => {
    const cli = makeCli();
    try {
      const listed = (await cli.run(["call", "--help"])).out;
      expect(operations.filter(({ name }) => !listed.includes(` ${name} `)).map(({ name }) => name)).toEqual(
        [],
      );
      for (const { name, fields } of operations) {
        const { code, out } = await cli.run(["call", name, "--help"]);
        const missing = fields
          .filter((one) => !out.includes(flagOf(one.name)) && !one.name.endsWith("Value"))
          .map((one) => one.name);
        expect({ name, code, missing }).toEqual({ name, code: 0, missing: [] });
      }
      expect((await cli.run(["__complete", "run", "pau"])).out).toBe("pause\npaused-state\n");
      expect((await cli.run(["__complete", "run", "list", "--stat"])).out).toBe("--status\n--statuses\n");
      expect((await cli.run(["__complete", "completion", ""])).out).toBe("bash\nzsh\nfish\n");
      expect((await cli.run(["completion", "bash"])).out).toContain("complete -o default -F _svc svc");
    } finally {
      cli.remove();
    }
  });
});

const server = (spec: string, kind = "Server") => `apiVersion: svc/v1\nkind: ${kind}\nspec:\n${spec}`;
const errorsOf = (text: string, argv: string[] = [], variables = {}) => {
  const read = readConfig(text, argv, variables);
  return read.ok ? [] : read.errors;
};

describe("a config file", () => {
  test("says settings, takes variables where it names them, and yields to flags", () => {
    const text = server(`  port: \${PORT:-9200}
  storage: { driver: postgres, url: "\${DB}", pool: { maxConns: 7, minConns: 1 } }
  nats: { url: "nats://127.0.0.1:4222" }
  cluster: { nodeId: one }
  observability: { metrics: { enabled: true } }
  engine: { pushTimeout: 5s }
  settings: { leaseMs: 20000 }
`);
    const read = readConfig(text, ["--host", "::1"], { DB: "postgres://a/b", SVC_PORT: "1", PATH: "/" });
    expect(read).toMatchObject({
      ok: true,
      filed: {
        kind: "Server",
        config: {
          ...{ port: 9200, host: "::1", databaseUrl: "postgres://a/b", poolSize: 7, nodeId: "one" },
          ...{ metricsEnabled: true, pushTimeoutMs: 5_000, leaseMs: 20_000 },
        },
        notices: [
          expect.stringContaining("minConns is not used"),
          expect.stringContaining("SVC_PORT is ignored"),
        ],
      },
    });
    const flagged = readConfig(server("  port: 9200\n"), ["--port", "9300"], {});
    expect(flagged).toMatchObject({ filed: { config: { port: 9300 } } });
  });

  test("names the key and the rule of whatever is wrong", () => {
    const cases: [string, RegExp][] = [
      ["a: [", /^the file is not YAML: /],
      ["- a", /one YAML document/],
      [server("  prot: 1\n"), /^spec\.prot: unknown key, did you mean port\?$/],
      [server("  nats: { urll: x }\n"), /^spec\.nats\.urll: unknown key, did you mean url\?$/],
      [server("  port: many\n"), /^spec\.port: must be a whole number/],
      [server("  port: [1]\n"), /^spec\.port: must be one value/],
      [server("  storage: file\n"), /^spec\.storage: must be a map$/],
      [server("  storage: { driver: oracle }\n"), /^spec\.storage\.driver: must be one of/],
      [server(`  storage: { url: "\${NOWHERE}" }\n`), /^spec\.storage\.url: the variable NOWHERE is not set/],
      [server("  auth: { masterKey: hush }\n"), /^spec\.auth\.masterKey: must be (?!.*hush)/],
      [server("  auth: { devMode: true }\n  host: 0.0.0.0\n"), /loopback/],
      [server("  settings: { leasems: 1 }\n"), /unknown setting, did you mean leaseMs\?/],
      [server("  platform: { organizations: [] }\n"), /of kind Platform alone/],
      [
        server("  platform: { organizations: [{ nmae: a }] }\n", "Platform"),
        /^spec\.platform\.organizations\[0\]/,
      ],
      [server("  port: 1\n", "Cluster"), /a Cluster needs/],
      [server("  port: 1\n", "Pod"), /^kind: must be one of/],
      ["apiVersion: v1\nkind: Server\nspecs: {}\n", /^apiVersion: must be svc\/v1$/],
    ];
    for (const [text, said] of cases)
      expect([text, errorsOf(text)[0]]).toEqual([text, expect.stringMatching(said)]);
  });

  test("is written by config init, checked by validate, and read by serve -f", async () => {
    const cli = makeCli();
    try {
      for (const kind of ["Server", "Cluster", "Platform"]) {
        const words = ["config", "init", "--kind", kind, "--prod", "--to", `${kind}.yaml`];
        expect((await cli.run(words)).code).toBe(0);
        const environment = { DATABASE_URL: "postgres://a/b", MASTER_KEY: "5e".repeat(32) };
        const valid = await cli.run(["validate", "-f", `${kind}.yaml`], { environment });
        expect(valid).toEqual({ code: 0, err: "", out: `${kind}.yaml: a valid ${kind}\n` });
        expect(await cli.run(["validate", `${kind}.yaml`], { environment })).toEqual(valid);
      }
      const again = await cli.run(["config", "init", "--to", "Server.yaml"]);
      expect(again).toMatchObject({ code: 2, err: expect.stringContaining("exists") });
      expect((await cli.run(["validate", "-f", "nowhere.yaml"])).code).toBe(2);
      expect(await cli.run(["validate"])).toMatchObject({
        code: 2,
        err: expect.stringMatching(/which file/),
      });
      writeFileSync(join(cli.folder, "small.yaml"), server("  port: 9200\n"));
      const read = await serveArguments(["-f", "small.yaml", "--host", "::1"], {}, cli.folder);
      expect(read).toMatchObject({ ok: true, config: { port: 9200, host: "::1" } });
      expect(await serveArguments(["-f"], {}, cli.folder)).toMatchObject({ ok: false });
    } finally {
      cli.remove();
    }
  });
});

test("commands that open a database have a help of their own", async () => {
  const cli = makeCli({}, { rawCommands });
  try {
    for (const name of ["backup", "restore", "import"])
      for (const words of [
        [name, "--help"],
        ["help", name],
      ]) {
        const { code, out } = await cli.run(words);
        expect({ name, code, out }).toEqual({
          name,
          code: 0,
          out: expect.stringMatching(new RegExp(`^svc ${name} `)),
        });
        expect(out).not.toContain("Settings of serve");
      }
  } finally {
    cli.remove();
  }
});

test("svc init makes a project or nothing", async () => {
  const cli = makeCli();
  try {
    expect((await cli.run(["init", "Shop One"])).code).toBe(0);
    const folder = join(cli.folder, "Shop One");
    const own = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    expect(own).toMatchObject({ name: "shop-one", dependencies: { svc: `file:vendor/svc-${version}.tgz` } });
    expect(packageFile.devDependencies).toMatchObject(own.devDependencies);
    expect(own.allowScripts).toEqual({ [`bun@${own.devDependencies.bun}`]: true });
    expect(existsSync(join(folder, `vendor/svc-${version}.tgz`))).toBe(true);
    mkdirSync(join(cli.folder, "taken"));
    writeFileSync(join(cli.folder, "taken/compose.yaml"), "");
    const refused = await cli.run(["init", "taken"]);
    expect(refused).toMatchObject({ code: 2, err: expect.stringContaining("compose.yaml exists") });
    expect([...new Bun.Glob("**/*").scanSync({ cwd: join(cli.folder, "taken") })]).toEqual(["compose.yaml"]);
  } finally {
    cli.remove();
  }
});
