import { describe, expect, test } from "bun:test";
import { CronError, parseCron } from "../../src/kit/cron/cron.ts";

const slots = (expression: string, from: string, count: number) => {
  const plan = parseCron(expression);
  const list: string[] = [];
  for (let at = Date.parse(from); list.length < count; ) {
    const next = plan.next(at);
    if (next === undefined) break;
    expect(next).toBeGreaterThan(at);
    at = next;
    list.push(new Date(at).toISOString().replace(".000Z", "Z"));
  }
  return list;
};

describe("cron expressions", () => {
  test.each([
    ["*/15 * * * *", ["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]],
    ["*/30 * * * * *", ["2026-01-01T00:00:30Z", "2026-01-01T00:01:00Z"]],
    ["0 9 * * MON-FRI", ["2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z", "2026-01-05T09:00:00Z"]],
    ["0 0 1 jan,JUL *", ["2026-07-01T00:00:00Z", "2027-01-01T00:00:00Z"]],
    ["0 0 * * 7", ["2026-01-04T00:00:00Z"]],
    ["0 0 * * 0", ["2026-01-04T00:00:00Z"]],
    ["0 12 5 * MON", ["2026-01-05T12:00:00Z", "2026-01-12T12:00:00Z"]],
    [
      "10-20/5 0 * * *",
      ["2026-01-01T00:10:00Z", "2026-01-01T00:15:00Z", "2026-01-01T00:20:00Z", "2026-01-02T00:10:00Z"],
    ],
    ["@hourly", ["2026-01-01T01:00:00Z"]],
    ["@daily", ["2026-01-02T00:00:00Z"]],
    ["CRON_TZ=America/New_York 0 9 * * *", ["2026-01-01T14:00:00Z"]],
    ["TZ=Asia/Kolkata  0 9 * * *", ["2026-01-01T03:30:00Z"]],
    ["0 0 29 2 *", ["2028-02-29T00:00:00Z"]],
  ])("%s", (expression, expected) => {
    expect(slots(expression, "2026-01-01T00:00:00Z", expected.length)).toEqual(expected);
  });

  test.each([
    "",
    "* * *",
    "* * * * * * *",
    "61 * * * *",
    "* 25 * * *",
    "* * * * FOO",
    "5-1 * * * *",
    "*/0 * * * *",
    "0 0 30 2 *",
    "@sometimes",
    "2026-01-01T00:00:00",
    "CRON_TZ=Mars/Phobos 0 9 * * *",
    "CRON_TZ=UTC",
    "hello world it is me",
  ])("%j is refused with a reason", (expression) => {
    expect(() => parseCron(expression)).toThrow(CronError);
    try {
      parseCron(expression);
    } catch (error) {
      expect((error as Error).message.length).toBeGreaterThan(5);
    }
  });

  test.each([
    // 02:00 -> 03:00 on 29 March, 03:00 -> 02:00 on 25 October.
    [
      "Europe/Berlin",
      "30 2 * * *",
      "2026-03-28T12:00:00Z",
      ["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"],
      "2026-10-24T12:00:00Z",
      ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
    ],
    // 02:00 -> 03:00 on 8 March, 02:00 -> 01:00 on 1 November.
    [
      "America/New_York",
      "30 2 * * *",
      "2026-03-07T12:00:00Z",
      ["2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"],
      "2026-10-31T12:00:00Z",
      ["2026-11-01T07:30:00Z", "2026-11-02T07:30:00Z"],
    ],
    // Half an hour: 02:00 -> 02:30 on 4 October, 02:00 -> 01:30 on 5 April.
    [
      "Australia/Lord_Howe",
      "15 2 * * *",
      "2026-10-03T12:00:00Z",
      ["2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"],
      "2026-04-04T06:00:00Z",
      ["2026-04-04T15:45:00Z", "2026-04-05T15:45:00Z"],
    ],
    // 00:00 -> 01:00 on 24 April, 24:00 -> 23:00 on 29 October.
    [
      "Africa/Cairo",
      "30 0 * * *",
      "2026-04-23T12:00:00Z",
      ["2026-04-23T22:30:00Z", "2026-04-24T21:30:00Z"],
      "2026-10-29T12:00:00Z",
      ["2026-10-29T22:30:00Z", "2026-10-30T22:30:00Z"],
    ],
  ] as const)(
    "a daily slot in %s comes once a day, whatever the clock does",
    (zone, fields, spring, forward, autumn, back) => {
      expect(slots(`CRON_TZ=${zone} ${fields}`, spring, 2)).toEqual([...forward]);
      expect(slots(`CRON_TZ=${zone} ${fields}`, autumn, 2)).toEqual([...back]);
    },
  );

  test("slots of a skipped and of a repeated hour, none lost and none twice", () => {
    // Half an hour is skipped: 02:25 comes at 02:55, 02:35 is shown.
    expect(slots("TZ=Australia/Lord_Howe 25,35 2 * * *", "2026-10-03T12:00:00Z", 3)).toEqual([
      "2026-10-03T15:35:00Z",
      "2026-10-03T15:55:00Z",
      "2026-10-04T15:25:00Z",
    ]);
    expect(slots("TZ=Europe/Berlin 0,30 1-3 * * *", "2026-03-28T23:59:00Z", 5)).toEqual([
      "2026-03-29T00:00:00Z",
      "2026-03-29T00:30:00Z",
      "2026-03-29T01:00:00Z",
      "2026-03-29T01:30:00Z",
      "2026-03-29T23:00:00Z",
    ]);
    expect(slots("TZ=Europe/Berlin 0,30 2 * * *", "2026-10-24T23:00:00Z", 3)).toEqual([
      "2026-10-25T00:00:00Z",
      "2026-10-25T00:30:00Z",
      "2026-10-26T01:00:00Z",
    ]);
    expect(slots("TZ=Africa/Cairo 30 23 * * *", "2026-10-29T12:00:00Z", 2)).toEqual([
      "2026-10-29T20:30:00Z",
      "2026-10-30T21:30:00Z",
    ]);
    expect(slots("TZ=Asia/Kolkata */20 * * * * *", "2026-01-01T00:00:00Z", 2)).toHaveLength(2);
  });

  test.each(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"])(
    "every quarter of an hour in %s is every quarter of an hour",
    (zone) => {
      for (const from of [
        "2026-03-07T00:00:00Z",
        "2026-03-28T00:00:00Z",
        "2026-04-04T00:00:00Z",
        "2026-04-23T00:00:00Z",
        "2026-10-03T00:00:00Z",
        "2026-10-24T00:00:00Z",
        "2026-10-29T00:00:00Z",
        "2026-10-31T00:00:00Z",
      ]) {
        const list = slots(`CRON_TZ=${zone} */15 * * * *`, from, 200).map((text) => Date.parse(text));
        for (const [place, at] of list.entries())
          if (place > 0) expect(at - list[place - 1]!).toBe(15 * 60_000);
      }
    },
  );
});

test("an expression is read once, and neither it nor a list in it is longer than it may be", () => {
  expect(parseCron("*/7 * * * * *")).toBe(parseCron("*/7 * * * * *"));
  const list = (count: number) => `${Array.from({ length: count }, () => "1").join(",")} * * * *`;
  expect(() => parseCron(list(60))).not.toThrow();
  expect(() => parseCron(list(61))).toThrow("a list has at most 60 items");
  expect(() => parseCron(`${"0 ".repeat(300)}* * * *`)).toThrow("more than 512 bytes");
});
