import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { hints, idleHints, staleReads } from "./support/tidy-access.ts";
import { numbersAreWide, settingsAreRead } from "./support/tidy-additions.ts";
import { arrowBreaches, capabilityCycles, clusterBreaches, fileCircles } from "./support/tidy-arrows.ts";
import { messageShapes } from "./support/tidy-bus.ts";
import { cliLaws } from "./support/tidy-cli.ts";
import { functionBreaches, functionExamples, functionLinesMax } from "./support/tidy-functions.ts";
import { givenUpLaw } from "./support/tidy-given-up.ts";
import type { Law } from "./support/tidy-law.ts";
import { logLaw } from "./support/tidy-logs.ts";
import { pageBreaches } from "./support/tidy-pages.ts";
import { idleParts, partsLaw } from "./support/tidy-parts.ts";
import {
  assignBreaches,
  clockBreaches,
  commentBreaches,
  commentLettersMax,
  driverBreaches,
  exportBreaches,
  extensionBreaches,
  lengthBreaches,
  linesMax,
  lockBreaches,
  packageBreaches,
  skippedBreaches,
  sleepBreaches,
  unfinishedBreaches,
} from "./support/tidy-rules.ts";
import type { Source } from "./support/tidy-source.ts";
import { oneSided, typeNames } from "./support/tidy-types.ts";

const root = resolve(import.meta.dir, "..");

function sourcesOf(...folders: string[]): Source[] {
  return folders
    .flatMap((folder) => [...new Bun.Glob(`${folder}/**/*.{ts,tsx}`).scanSync({ cwd: root })])
    .filter((path) => !path.startsWith("src/gen/"))
    .sort()
    .map((path) => ({ path, text: readFileSync(join(root, path), "utf8") }));
}

const manifest: { dependencies: Record<string, string> } = await Bun.file(join(root, "package.json")).json();
const packages = packageBreaches(Object.keys(manifest.dependencies));
const src = sourcesOf("src");
const tests = sourcesOf("test");
const cluster = sourcesOf("cluster");
const all = [...src, ...tests, ...cluster];

const textsOf = (pattern: string): Source[] =>
  [...new Bun.Glob(pattern).scanSync({ cwd: root })]
    .sort()
    .map((path) => ({ path, text: readFileSync(join(root, path), "utf8") }));
const pages = ["*.md", ...["src", "proto", "cluster", "test"].map((folder) => `${folder}/**/*.md`)].flatMap(
  textsOf,
);
const citesPages = pageBreaches(new Map(pages.map(({ path, text }) => [path, text])));
const citing = [...src, ...["proto/**/*.{proto,yaml}", "cluster/*.{ts,yaml,conf,cfg}"].flatMap(textsOf)];

const imports = (target: string) => `import { one } from "${target}";\n`;
const types = (target: string) => `import type { One } from "${target}";\n`;

const laws: (Law & { over: Source[] })[] = [
  {
    name: "imports go one way",
    rule: arrowBreaches,
    over: src,
    bad: [
      ["src/kit/page.ts", `// A page.\n${imports("../store/store.ts")}`, 2],
      ["src/store/postgres.ts", imports("../bus/bus.ts"), 1],
      ["src/store/postgres.ts", imports("../domain/engine/runs/rules.ts"), 1],
      ["src/bus/nats.ts", imports("../store/store.ts"), 1],
      ["src/store/tables/index.ts", imports("../postgres.ts"), 1],
      ["src/domain/engine/runs/rules.ts", imports("../../../store/tables/index.ts"), 1],
      ["src/nodes/duties.ts", imports("../store/postgres.ts"), 1],
      ["src/gate/decide.ts", imports("../store/store.ts"), 1],
      ["src/domain/engine/runs/rules.ts", imports("../../../store/store.ts"), 1],
      ["src/domain/engine/runs/rules.ts", imports("./rows.ts"), 1],
      ["src/domain/engine/runs/rules.ts", imports("../functions/definition.ts"), 1],
      ["src/domain/engine/runs/rows.ts", imports("../functions/rows.ts"), 1],
      ["src/domain/engine/runs/rows.ts", imports("../../../store/postgres.ts"), 1],
      ["src/domain/engine/runs/service.ts", imports("../functions/service.ts"), 1],
      ["src/domain/engine/runs/service.ts", imports("../functions/rows.ts"), 1],
      ["src/domain/engine/runs/service.ts", imports("../../../edge/perform.ts"), 1],
      ["src/domain/engine/runs/service.ts", imports("../../../gen/svc/v1/svc_pb.ts"), 1],
      ["src/domain/engine/runs/operations.ts", imports("./rows.ts"), 1],
      ["src/domain/engine/runs/operations.ts", imports("../../../store/store.ts"), 1],
      ["src/edge/rpc.ts", types("../domain/engine/runs/service.ts"), 1],
      ["src/edge/rpc.ts", imports("../domain/engine/runs/operations.ts"), 1],
      ["src/edge/rpc.ts", imports("../store/store.ts"), 1],
      ["src/edge/rpc.ts", `const late = await import("../domain/engine/runs/rows.ts");`, 1],
      ["src/edge/rpc.ts", `\nexport * from "../domain/engine/runs/rows.ts";`, 2],
      ["src/sdk/client.ts", imports("../kit/clock.ts"), 1],
      ["src/demo/main.ts", imports("../kit/clock.ts"), 1],
      ["src/settings/settings.ts", imports("../store/store.ts"), 1],
      ["src/kit/page.ts", imports("../app/part.ts"), 1],
      ["src/settings.ts", "", 1],
      ["src/helpers/one.ts", "", 1],
      ["src/other.ts", "", 1],
      ["src/domain/loose.ts", "", 1],
      ["src/edge/http.ts", imports("../../test/support/until.ts"), 1],
      ["src/cli/backup.ts", imports("../domain/engine/runs/rows.ts"), 1],
      ["src/main.ts", imports("../cluster/processes.ts"), 1],
    ],
    good: [
      ["src/cli/backup.ts", imports("../store/libsql-backup.ts") + imports("../settings/settings.ts")],
      ["src/app/engine.ts", imports("../domain/engine/runs/service.ts") + imports("../bus/open.ts")],
      ["src/kit/page.ts", imports("./limits.ts")],
      ["src/domain/access/tenancy/purge-rows.ts", imports("../../../store/tables/index.ts")],
      ["src/store/postgres.ts", imports("./store.ts") + imports("../kit/sql.ts")],
      [
        "src/domain/engine/runs/rules.ts",
        imports("../../../kit/fault.ts") + types("../functions/definition.ts"),
      ],
      ["src/domain/engine/runs/rows.ts", imports("../../../store/store.ts") + imports("./rules.ts")],
      ["src/domain/engine/runs/service.ts", imports("./rows.ts") + types("../functions/service.ts")],
      ["src/domain/engine/runs/service.ts", `import { type One, type Two } from "../functions/service.ts";`],
      [
        "src/domain/engine/runs/operations.ts",
        types("./service.ts") + imports("../../../gen/svc/v1/svc_pb.ts"),
      ],
      ["src/edge/rpc.ts", types("../domain/engine/runs/operations.ts") + imports("../gate/decide.ts")],
      ["src/server.ts", imports("./store/postgres.ts") + imports("./domain/engine/runs/service.ts")],
      [
        "src/edge/rpc.ts",
        `// import { one } from "../store/store.ts";\nconst text = 'import "../store/store.ts"';`,
      ],
    ],
  },
  {
    name: "the tools of cluster/ stand alone",
    rule: clusterBreaches,
    over: cluster,
    bad: [
      ["cluster/up.ts", imports("../src/settings/settings.ts"), 1],
      ["cluster/up.ts", imports("../test/support/until.ts"), 1],
      ["cluster/up.ts", `\n${imports("postgres")}`, 2],
    ],
    good: [["cluster/up.ts", imports("./state.ts") + imports("node:path")]],
  },
  {
    name: "only one place knows a driver",
    rule: driverBreaches,
    over: src,
    bad: [
      ["src/domain/engine/runs/rows.ts", `import postgres from "postgres";`, 1],
      ["src/store/migrate.ts", `import { Database } from "bun:sqlite";`, 1],
      ["src/store/postgres.ts", `import Database from "libsql";`, 1],
      ["src/bus/local.ts", `\nimport type { NatsConnection } from "@nats-io/transport-node";`, 2],
      ["src/nodes/nodes.ts", `import { Kvm } from "@nats-io/kv";`, 1],
      ["src/kit/metrics.ts", `import { Counter } from "prom-client";`, 1],
      ["src/edge/request-log.ts", `import { trace } from "@opentelemetry/api";`, 1],
    ],
    good: [
      ["src/store/postgres.ts", `import postgres from "postgres";`],
      ["src/store/libsql-bun.ts", `import { Database } from "bun:sqlite";`],
      ["src/bus/nats-names.ts", `import { Kvm } from "@nats-io/kv";`],
    ],
  },
  { ...messageShapes, over: src },
  {
    name: "what ships imports dependencies and built-in modules only",
    rule: packages,
    over: src,
    bad: [
      ["src/edge/http.ts", `import { test } from "playwright-core";`, 1],
      ["src/edge/http.ts", `import { one } from "@scope/package/deep";`, 1],
    ],
    good: [
      [
        "src/edge/http.ts",
        `import { Elysia } from "elysia";\nimport "@sinclair/typebox/compiler";\nimport "node:fs";`,
      ],
    ],
  },
  {
    name: "capabilities have an order: no circles",
    rule: capabilityCycles,
    together: true,
    over: src,
    bad: [
      ["src/domain/engine/runs/service.ts", types("../functions/service.ts"), 1],
      ["src/domain/engine/functions/service.ts", types("../timers/service.ts"), 1],
      ["src/domain/engine/timers/service.ts", types("../runs/service.ts"), 1],
    ],
    good: [["src/domain/engine/runs/service.ts", types("../functions/service.ts") + types("./rules.ts")]],
  },
  {
    name: "time and chance are handed in",
    rule: clockBreaches,
    over: src,
    bad: [
      ["src/edge/http.ts", "const now = Date.now();", 1],
      ["src/edge/http.ts", "\n\nconst now = new Date();", 3],
      ["src/edge/http.ts", "const now = new Date;", 1],
      ["src/domain/engine/runs/rules.ts", "performance.now()", 1],
      ["src/domain/engine/runs/rules.ts", "Math.random()", 1],
      ["src/domain/engine/runs/rules.ts", "const id = crypto.randomUUID();", 1],
      ["src/domain/engine/runs/rules.ts", "globalThis.crypto.getRandomValues(bytes)", 1],
      ["src/domain/engine/runs/loop.ts", "setTimeout(tick, 5)", 1],
      ["src/domain/engine/runs/loop.ts", "globalThis.setTimeout(tick, 5)", 1],
      ["src/domain/engine/runs/loop.ts", `\nimport { setTimeout as wait } from "node:timers/promises";`, 2],
      ["src/domain/engine/runs/loop.ts", "setInterval(tick, 5)", 1],
      ["src/domain/engine/runs/loop.ts", "await Bun.sleep(5)", 1],
      ["src/kit/backoff.ts", `const wobble = \`\${Math.random()}\`;`, 1],
    ],
    good: [
      ["src/kit/clock.ts", "Date.now(); performance.now(); setTimeout(tick, 5)"],
      ["src/sdk/worker/worker.ts", "setTimeout(tick, 5); Date.now()"],
      [
        "src/edge/http.ts",
        "new Date(at); new Date(0); clock.setTimeout(5); // Date.now()\nconst text = 'Math.random()';",
      ],
      ["src/edge/http.ts", "const word = /Date.now/; const text = `Date.now`;"],
    ],
  },
  {
    name: "rows are locked in the order of their keys",
    rule: lockBreaches,
    over: src.filter(({ path }) => path.startsWith("src/domain/")),
    bad: [
      [
        "src/domain/engine/runs/rows.ts",
        "\nsql`SELECT id FROM runs WHERE id IN (SELECT id FROM wanted) FOR UPDATE`",
        2,
      ],
      [
        "src/domain/engine/runs/rows.ts",
        `sql\`SELECT id FROM runs WHERE a = \${a} AND b IN (1) \${session.seams.holdRow}\``,
        1,
      ],
      [
        "src/domain/engine/runs/rows.ts",
        "sql`SELECT id FROM runs ORDER BY id`; sql`SELECT id FROM heads FOR UPDATE OF h`",
        1,
      ],
    ],
    good: [
      [
        "src/domain/engine/runs/rows.ts",
        "sql`SELECT id FROM runs WHERE id IN (SELECT id FROM wanted) ORDER BY id FOR UPDATE`",
      ],
      ["src/domain/engine/runs/rows.ts", "sql`SELECT id FROM runs LIMIT 5 FOR UPDATE SKIP LOCKED`"],
      [
        "src/domain/engine/runs/rows.ts",
        `// FOR UPDATE\nsql\`SELECT id FROM runs WHERE id = \${id} \${session.seams.holdRow}\``,
      ],
    ],
  },
  { ...staleReads, over: src },
  { ...typeNames, over: src },
  { ...logLaw, over: src },
  { ...fileCircles, over: src },
  { ...settingsAreRead, over: src },
  { ...numbersAreWide, over: src },
  {
    name: `a file has at most ${linesMax} lines`,
    rule: lengthBreaches,
    over: all,
    bad: [["src/edge/http.ts", "line\n".repeat(linesMax + 1), linesMax + 1]],
    good: [["src/edge/http.ts", "line\n".repeat(linesMax)]],
  },
  {
    name: `a function has at most ${functionLinesMax} lines`,
    rule: functionBreaches,
    over: [...src, ...cluster],
    ...functionExamples,
  },
  {
    name: `a comment line has at most ${commentLettersMax} letters`,
    rule: commentBreaches,
    over: src,
    bad: [
      ["src/edge/http.ts", `\n// ${"x".repeat(commentLettersMax - 2)}`, 2],
      ["src/edge/http.ts", `/**\n * ${"x".repeat(commentLettersMax - 2)}\n */`, 2],
      ["src/edge/http.ts", `  /** ${"x".repeat(commentLettersMax - 8)} */`, 1],
    ],
    good: [
      ["src/edge/http.ts", `// ${"x".repeat(commentLettersMax - 3)}\nconst text = "${"x".repeat(200)}";`],
    ],
  },
  {
    name: "exports are named",
    rule: exportBreaches,
    over: all,
    bad: [
      ["src/edge/http.ts", "\nexport default 1;", 2],
      ["src/edge/http.ts", "export { one as default };", 1],
    ],
    good: [["src/edge/http.ts", "export const one = 1; // never export default\nswitch (one) { default: }"]],
  },
  {
    name: "nothing that was sent is assigned onto an object",
    rule: assignBreaches,
    over: all,
    bad: [["src/edge/rest.ts", "\nObject.assign(input, body);", 2]],
    good: [
      ["src/edge/rest.ts", "const input = { ...body }; // as Object.assign would"],
      ["src/sdk/testing/testing.ts", "Object.assign(plan.secrets, values);"],
    ],
  },
  {
    name: "nothing is marked as unfinished",
    rule: unfinishedBreaches,
    over: all,
    bad: [
      ["src/edge/http.ts", `\n// ${"TO"}${"DO"}: later`, 2],
      ["src/edge/http.ts", `throw new Error("${"not"} implemented")`, 1],
    ],
    good: [["src/edge/http.ts", `throw new Fault("unimplemented", "manual ack on this stream");`]],
  },
  {
    name: "what is cited is in the tree",
    rule: citesPages,
    over: [...citing, ...pages],
    bad: [
      ["src/edge/http.ts", "\n// The wire wants it (contract.md 1.2).", 2],
      ["src/edge/http.ts", "/** proto/README.md 'No such section'. */", 1],
    ],
    good: [
      ["src/edge/http.ts", "/** proto/README.md\n * 'Job reports', src/README.md. */"],
      ["cluster/up.ts", "// README.md, 'Add a node'"],
    ],
  },
  {
    name: "imports name files with their ending",
    rule: extensionBreaches,
    over: all,
    bad: [["src/edge/http.ts", imports("./perform"), 1]],
    good: [
      ["src/edge/http.ts", `${imports("./perform.ts")}${imports("elysia")}import page from "./index.html";`],
    ],
  },
  {
    name: "tests wait for conditions, not for time",
    rule: sleepBreaches,
    over: tests,
    bad: [
      ["test/unit/runs.test.ts", "\nawait Bun.sleep(500);", 2],
      ["test/unit/runs.test.ts", `import { setTimeout as wait } from "node:timers/promises";`, 1],
      ["test/unit/runs.test.ts", "await new Promise((done) => setTimeout(done, 500));", 1],
    ],
    good: [
      ["test/support/until.ts", "await Bun.sleep(everyMs);"],
      ["test/unit/runs.test.ts", "await until(done, { about: 'it' }); const text = 'Bun.sleep(1)';"],
    ],
  },
  {
    name: "every test runs",
    rule: skippedBreaches,
    over: tests,
    bad: [
      ["test/unit/runs.test.ts", "test.skip('x', () => {})", 1],
      ["test/unit/runs.test.ts", "\ndescribe.only('x', () => {})", 2],
    ],
    good: [["test/unit/runs.test.ts", "test('x', () => {}); test.each([1])('y', () => {});"]],
  },
  { ...givenUpLaw, over: src },
  { ...partsLaw, over: src },
  ...cliLaws.map((law) => ({ ...law, over: src })),
];

describe.each(laws)("$name", ({ rule, over, together, bad, good }) => {
  test("holds", () => {
    expect(rule(over)).toEqual([]);
  });

  test("is seen to be broken", () => {
    const made = bad.map(([path, text]) => ({ path, text }));
    const missed = bad.filter(([path, , line], index) => {
      const breaches = rule(together ? made : made.slice(index, index + 1));
      return !breaches.some((breach) => breach.includes(`${path}:${line}`));
    });
    expect(missed).toEqual([]);
    expect(bad.length).toBeGreaterThan(0);
  });

  test("leaves alone what is right", () => {
    expect(rule(good.map(([path, text]) => ({ path, text })))).toEqual([]);
  });
});

test("exceptions are listed only while there are such", () => {
  expect(idleHints(src, hints)).toEqual([]);
  expect(oneSided(src)).toEqual([]);
  expect(idleParts(src)).toEqual([]);
});
