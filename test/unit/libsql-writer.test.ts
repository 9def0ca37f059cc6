import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import type { Connection } from "../../src/store/libsql-drivers.ts";
import { writer } from "../../src/store/libsql-writer.ts";

function connectionThat(refuses: (text: string) => boolean) {
  const texts: string[] = [];
  let open = false;
  const connection: Connection = {
    exec(text) {
      texts.push(text);
      if (refuses(text))
        throw Object.assign(new Error(`disk I/O error at ${text}`), { code: "SQLITE_IOERR" });
      if (text.startsWith("BEGIN")) open = true;
      if (text === "COMMIT" || text === "ROLLBACK") open = false;
    },
    prepare: () => {
      throw new Error("no statements here");
    },
    inTransaction: () => open,
    close() {},
  };
  const queue = writer({
    ...{ clock: testClock(), connection, unitsMax: 100, groupMs: 1_000, idleMs: 1_000 },
    onFailed: () => {},
  });
  const outcome = (run: () => string, repeatable?: true) =>
    queue
      .submit({ run, ...(repeatable && { repeatable }) })
      .catch((error: { trouble?: string; message: string }) => error.trouble ?? error.message);
  /** As SQLite does by itself after some errors. */
  const undoAll = () => {
    open = false;
    throw new Error("undone");
  };
  return { texts, outcome, queue, undoAll };
}

const fails = () => {
  throw new Error("no");
};

test("a commit that fails fails everyone in its group, and the next group goes on", async () => {
  let broken = true;
  const { outcome, texts } = connectionThat((text) => text === "COMMIT" && broken);
  const group = await Promise.all([outcome(() => "a"), outcome(() => "b")]);
  expect(group).toEqual(["unavailable", "unavailable"]);
  broken = false;
  expect(await outcome(() => "c")).toBe("c");
  expect(texts).toEqual([
    "BEGIN IMMEDIATE",
    "SAVEPOINT unit",
    "RELEASE unit",
    "COMMIT",
    "ROLLBACK",
    "BEGIN IMMEDIATE",
    "COMMIT",
  ]);
});

test("a unit that fails first takes its transaction with it; one that fails later only its savepoint", async () => {
  const { outcome, texts } = connectionThat(() => false);
  const group = await Promise.all([outcome(fails), outcome(() => "b"), outcome(fails), outcome(() => "d")]);
  expect(group).toEqual(["no", "b", "no", "d"]);
  expect(texts).toEqual([
    "BEGIN IMMEDIATE",
    "ROLLBACK",
    "BEGIN IMMEDIATE",
    "SAVEPOINT unit",
    "ROLLBACK TO unit; RELEASE unit",
    "SAVEPOINT unit",
    "RELEASE unit",
    "COMMIT",
  ]);
});

test("when one unit makes the database undo all, those before it run again or are told that they may try again", async () => {
  const { outcome, texts, undoAll } = connectionThat(() => false);
  const runs: string[] = [];
  const run = (name: string) => () => {
    runs.push(name);
    return name;
  };
  const group = await Promise.all([
    outcome(run("a"), true),
    outcome(run("b")),
    outcome(undoAll),
    outcome(run("d")),
  ]);
  expect(group).toEqual(["a", "unavailable", "undone", "d"]);
  expect(runs).toEqual(["a", "b", "d", "a"]);
  expect(texts.filter((text) => /BEGIN|COMMIT/.test(text))).toEqual([
    "BEGIN IMMEDIATE",
    "BEGIN IMMEDIATE",
    "COMMIT",
  ]);
});

test("a transaction that cannot begin refuses its units", async () => {
  const { outcome, queue } = connectionThat((text) => text.startsWith("BEGIN"));
  expect(await Promise.all([outcome(() => "a"), outcome(() => "b")])).toEqual(["unavailable", "unavailable"]);
  await queue.drain();
});
