import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { deal, inBrowser, judgedByTime, type Lane, lanes, type TestFile } from "../support/lanes.ts";
import { leftToNight, waitsForNight } from "../support/night.ts";
import { type Batch, batchesOf, keyOf, schedule } from "../support/schedule.ts";
import { reachingTests } from "../support/since.ts";
import recorded from "../support/times.json" with { type: "json" };

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

test("a process is given each share once, and long files have one of their own", () => {
  const { shares } = deal(files);
  const batches = batchesOf(shares);
  const given = batches.flatMap(({ lane, engine, files }) =>
    files.map((file) => ({ file, lane, ...(engine && { engine }) })),
  );
  const sorted = (list: object[]) => list.map((one) => JSON.stringify(one)).sort();
  expect(sorted(given)).toEqual(sorted(shares));
  const [one, other] = ["a", "b"].map((name) => ({ file: name, lane: "house" as const }));
  const long = { [keyOf(one!)]: [80, 40] } as const;
  expect(batchesOf([one!, other!], long).map(({ files, load }) => [files, load])).toEqual([
    [["a"], 0.55],
    [["b"], expect.closeTo(0.66)],
  ]);
});

test("the processors are filled with what computes and what waits, and what is alone comes last", async () => {
  const batch = (name: string, seconds: number, load: number): Batch => ({
    ...{ lane: name === "alone" ? "timing" : "house", engine: undefined, files: [name], seconds, load },
  });
  const given = [
    batch("busy", 9, 1.5),
    batch("alone", 8, 1),
    batch("also busy", 7, 1),
    batch("idle", 5, 0.4),
  ];
  const events: string[] = [];
  const ends: Record<string, () => void> = {};
  const scheduled = schedule(given, {
    cores: 2,
    run({ files: [name] }) {
      events.push(name!);
      return new Promise<void>((end) => (ends[name!] = end));
    },
    isAlone: ({ lane }) => lane === "timing",
  });
  const turn = async (name: string) => {
    ends[name]!();
    for (let count = 0; count < 5; count++) await Promise.resolve();
    return events;
  };
  expect(events).toEqual(["busy", "idle"]);
  expect(await turn("idle")).toEqual(["busy", "idle"]);
  expect(await turn("busy")).toEqual(["busy", "idle", "also busy"]);
  expect(await turn("also busy")).toEqual(["busy", "idle", "also busy", "alone"]);
  ends.alone!();
  await scheduled;
});

test("what is left to the night exists, and of a half the other half runs by day", () => {
  const { shares } = deal(files);
  const day = shares.filter((share) => !waitsForNight(share));
  for (const { engine, files: named } of leftToNight)
    for (const name of named) {
      const path = `test/${name}.test.ts`;
      expect(paths).toContain(path);
      if (engine) expect([path, day.filter(({ file }) => file === path).length]).toEqual([path, 1]);
    }
});

test("a change reaches the tests that import it, and no others", () => {
  const reaches = (...changed: string[]) => reachingTests(root, new Set(changed), paths);
  const lanesAlone = reaches("test/support/lanes.ts");
  expect(lanesAlone).toContain("test/unit/lanes.test.ts");
  expect(lanesAlone).not.toContain("test/operations/runs.test.ts");
  const store = reaches("src/store/postgres.ts");
  expect(store).toContain("test/operations/runs.test.ts");
  expect(store).toContain("test/cluster/heads.test.ts");
  expect(store).not.toContain("test/unit/cron.test.ts");
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

test("what drives a browser has a lane, each half by itself", () => {
  expect(dealt("test/dashboard/a.test.ts", halved).shares).toEqual([
    { file: "test/dashboard/a.test.ts", lane: "browser", engine: "libsql" },
    { file: "test/dashboard/a.test.ts", lane: "browser", engine: "postgres" },
  ]);
  expect(dealt("test/cluster/dashboard.test.ts", "").shares).toEqual([
    { file: "test/cluster/dashboard.test.ts", lane: "browser" },
  ]);
});

test("a file in no lane, and one in two, are told", () => {
  expect(dealt("test/elsewhere/a.test.ts", halved).wrong).toEqual(["test/elsewhere/a.test.ts is in no lane"]);
  const greedy: Lane[] = lanes.map((lane) => (lane.name === "fault" ? { ...lane, takes: () => true } : lane));
  const { wrong } = deal([{ path: "test/operations/a.test.ts", text: halved }], greedy);
  expect(wrong).toEqual(["test/operations/a.test.ts is in house and postgres and fault"]);
});

test("the files that are named exist", () => {
  const timed = Object.keys(recorded).map((key) => key.split(" ")[2]!);
  for (const path of [...judgedByTime, ...inBrowser, ...timed]) expect(paths).toContain(path);
});
