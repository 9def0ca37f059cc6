import { expect, test } from "bun:test";
import { combine, type ItemOutcome } from "../../src/kit/combine.ts";
import { until } from "../support/until.ts";

interface Item {
  group: string;
  number: number;
}
class Stuck extends Error {}
class Bad extends Error {}

/** One lane whose flushes wait to be told how they went. */
function oneLane() {
  const flushes: { items: readonly Item[]; pass(): void; stick(): void; fail(): void; spoil(): void }[] = [];
  const combiner = combine<Item, number>({
    name: "test",
    lanes: 1,
    laneOf: () => 0,
    itemsMax: 100,
    waitingMax: 1_000,
    isOfItem: (error) => error instanceof Bad,
    flush: (items) =>
      new Promise<ItemOutcome<number>[]>((resolve, reject) => {
        const pass = () => resolve(items.map(({ number }) => ({ value: number })));
        const stick = () => reject(new Stuck("stuck"));
        flushes.push({
          items,
          pass,
          stick,
          fail: () => reject(new Error("gone")),
          spoil: () => reject(new Bad("bad")),
        });
      }),
    apart: { groupOf: ({ group }) => group, isStuck: (error) => error instanceof Stuck },
  });
  const submit = (group: string, number: number) => {
    const answer = combiner.submit({ group, number });
    answer.catch(() => {});
    return answer;
  };
  /** The flush of this number, once `all` have begun. */
  const flushed = async (number: number, all = number) => {
    await until(() => flushes.length >= all, { about: `${all} flushes` });
    expect(flushes.length).toBe(all);
    return flushes[number - 1]!;
  };
  const groupsOf = (flush: { items: readonly Item[] }) =>
    flush.items.map(({ group, number }) => `${group}${number}`);
  return { combiner, submit, flushed, groupsOf };
}

const settled = (promises: Promise<number>[]) =>
  Promise.all(promises.map((one) => one.catch((error: Error) => error.message)));

test("after a stuck flush its groups go on alone with what waits of them, and the lane goes on without them", async () => {
  const { combiner, submit, flushed, groupsOf } = oneLane();
  const answers = [submit("a", 1), submit("b", 2)];
  const first = await flushed(1);
  answers.push(submit("a", 3), submit("c", 4));
  first.stick();
  const [common, a, b] = [await flushed(2, 4), await flushed(3, 4), await flushed(4)];
  expect([common, a, b].map(groupsOf)).toEqual([["c4"], ["a1", "a3"], ["b2"]]);

  // The lane is free again while "a" is still stuck.
  common.pass();
  b.pass();
  expect(await settled([answers[1]!, answers[3]!])).toEqual([2, 4]);
  answers.push(submit("c", 5), submit("b", 6));
  const next = await flushed(5);
  expect(groupsOf(next)).toEqual(["c5", "b6"]);
  next.pass();
  a.stick();
  expect(await settled(answers)).toEqual(["stuck", 2, "stuck", 4, 5, 6]);
  await combiner.drain();
  expect(combiner.counters().waiting).toBe(0);
});

test("a group that stuck alone stays apart until a flush of it passes", async () => {
  const { submit, flushed, groupsOf } = oneLane();
  const stuck = submit("a", 1);
  (await flushed(1)).stick();
  expect(await settled([stuck])).toEqual(["stuck"]);

  const apart = [submit("a", 2), submit("b", 3)];
  const [own, common] = [await flushed(2, 3), await flushed(3)];
  expect([own, common].map(groupsOf)).toEqual([["a2"], ["b3"]]);
  own.pass();
  common.pass();
  expect(await settled(apart)).toEqual([2, 3]);

  const together = [submit("a", 4), submit("b", 5)];
  const last = await flushed(4);
  expect(groupsOf(last)).toEqual(["a4", "b5"]);
  last.pass();
  expect(await settled(together)).toEqual([4, 5]);
});

test("groups apart have only so many flushes in flight; those that stuck come last", async () => {
  const { combiner, submit, flushed, groupsOf } = oneLane();
  const groups = ["a", "b", "c", "d", "e", "f"];
  const answers = groups.map((group, number) => submit(group, number));
  (await flushed(1)).stick();
  const four = [await flushed(2, 5), await flushed(3, 5), await flushed(4, 5), await flushed(5)];
  expect(four.flatMap(groupsOf)).toEqual(["a0", "b1", "c2", "d3"]);
  answers.push(submit("a", 6));
  four[0]!.stick();
  const fifth = await flushed(6);
  expect(groupsOf(fifth)).toEqual(["e4"]);
  fifth.pass();
  const sixth = await flushed(7);
  expect(groupsOf(sixth)).toEqual(["f5"]);
  sixth.pass();
  const again = await flushed(8);
  expect(groupsOf(again)).toEqual(["a6"]);
  for (const flush of [again, ...four.slice(1)]) flush.pass();
  expect(await settled(answers)).toEqual(["stuck", 1, 2, 3, 4, 5, 6]);
  await combiner.drain();
});

test("a failure of another kind sets nobody apart", async () => {
  const { submit, flushed, groupsOf } = oneLane();
  const answers = [submit("a", 1), submit("b", 2)];
  (await flushed(1)).fail();
  expect(await settled(answers)).toEqual(["gone", "gone"]);
  const next = [submit("a", 3), submit("b", 4)];
  const flush = await flushed(2);
  expect(groupsOf(flush)).toEqual(["a3", "b4"]);
  flush.pass();
  expect(await settled(next)).toEqual([3, 4]);
});

test("the group of an item that failed alone goes on beside its lane until a flush of it passes", async () => {
  const { combiner, submit, flushed, groupsOf } = oneLane();
  const answers = [submit("a", 1), submit("b", 2)];
  const first = await flushed(1);
  // Both come while the flush is under way: of the one group, and of another.
  answers.push(submit("a", 3), submit("c", 4));
  first.spoil();
  const a = await flushed(2);
  expect(groupsOf(a)).toEqual(["a1"]);
  a.spoil();
  const b = await flushed(3);
  expect(groupsOf(b)).toEqual(["b2"]);
  b.pass();
  const [common, own] = [await flushed(4, 5), await flushed(5)];
  expect([common, own].map(groupsOf)).toEqual([["c4"], ["a3"]]);
  // While the group's own flush hangs, the lane goes on.
  common.pass();
  answers.push(submit("c", 5));
  (await flushed(6)).pass();
  own.pass();
  expect(await settled(answers)).toEqual(["bad", 2, 3, 4, 5]);
  answers.push(submit("a", 6), submit("c", 7));
  const together = await flushed(7);
  expect(groupsOf(together)).toEqual(["a6", "c7"]);
  together.pass();
  expect(await settled(answers.slice(-2))).toEqual([6, 7]);
  await combiner.drain();
  expect(combiner.counters().waiting).toBe(0);
});
