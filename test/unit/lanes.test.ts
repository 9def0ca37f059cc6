import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import {
  batchesOf,
  deal,
  inBrowser,
  judgedByTime,
  type Lane,
  lanes,
  longFiles,
  type TestFile,
} from "../support/lanes.ts";

const root = resolve(import.meta.dir, "../..");
const paths = [...new Bun.Glob("test/**/*.test.ts").scanSync({ cwd: root })]
  .filter((path) => !path.startsWith("test/bench/"))
  .sort();
const files: TestFile[] = paths.map((path) => ({ path, text: readFileSync(join(root, path), "utf8") }));

const imported = `import { engines } from "../support/server.ts";\n`;
const halved = `${imported}describe.each(engines)("x on %s", (engine) => {\n  test("y", () => {});\n});\n`;
const dealt = (path: string, text: string) => deal([{ path, text }]);

test("each test file is dealt once, or each of its two halves", () => {
  const { shares, wrong } = deal(files);
  expect(wrong).toEqual([]);
  for (const path of paths) {
    const own = shares.filter((share) => share.file === path);
    const engines = own.map(({ engine }) => engine);
    expect([path, engines]).toEqual([path, own.length === 1 ? [undefined] : ["libsql", "postgres"]]);
  }
});

test("a process is given each of its lane's shares once", () => {
  const { shares } = deal(files);
  const given = lanes.flatMap((lane) =>
    batchesOf(lane, shares).flatMap(({ engine, files }) =>
      files.map((file) => ({ file, lane: lane.name, ...(engine && { engine }) })),
    ),
  );
  const sorted = (list: object[]) => list.map((one) => JSON.stringify(one)).sort();
  expect(sorted(given)).toEqual(sorted(shares));
});

test("a file with a half an engine runs in two lanes, one that holds more in one", () => {
  expect(dealt("test/operations/a.test.ts", halved).shares).toEqual([
    { file: "test/operations/a.test.ts", lane: "house", engine: "libsql" },
    { file: "test/operations/a.test.ts", lane: "postgres", engine: "postgres" },
  ]);
  const mixed = `${halved}test("of no engine", () => {});\n`;
  expect(dealt("test/operations/a.test.ts", mixed).shares).toEqual([
    { file: "test/operations/a.test.ts", lane: "postgres" },
  ]);
  expect(dealt("test/operations/a.test.ts", `test("z", () => {});`).shares).toEqual([
    { file: "test/operations/a.test.ts", lane: "house" },
  ]);
});

test("what drives a browser runs when nothing else does, each half by itself", () => {
  expect(dealt("test/dashboard/a.test.ts", halved).shares).toEqual([
    { file: "test/dashboard/a.test.ts", lane: "browser", engine: "libsql" },
    { file: "test/dashboard/a.test.ts", lane: "browser", engine: "postgres" },
  ]);
  expect(dealt("test/cluster/dashboard.test.ts", "").shares).toEqual([
    { file: "test/cluster/dashboard.test.ts", lane: "browser" },
  ]);
  const { phase } = lanes.find(({ name }) => name === "browser")!;
  expect(lanes.filter((lane) => lane.phase === phase)).toHaveLength(1);
});

test("a file in no lane, and one in two, are told", () => {
  expect(dealt("test/elsewhere/a.test.ts", halved).wrong).toEqual(["test/elsewhere/a.test.ts is in no lane"]);
  const greedy: Lane[] = lanes.map((lane) => (lane.name === "fault" ? { ...lane, takes: () => true } : lane));
  const { wrong } = deal([{ path: "test/operations/a.test.ts", text: halved }], greedy);
  expect(wrong).toEqual(["test/operations/a.test.ts is in house and postgres and fault"]);
});

test("the files that are named exist", () => {
  for (const path of [...judgedByTime, ...inBrowser, ...Object.keys(longFiles)])
    expect(paths).toContain(path);
});
