import { describe, expect, test } from "bun:test";
import { FlushPace } from "../../src/kit/combine-lane.ts";
import { chanceOf } from "../support/chance.ts";

const paceMs = 16;
const stepMs = 0.25;
const flushMax = 128;
/** A flush of one caller, and what each further one adds: as PostgreSQL on two cores. */
const flushMsOf = (size: number) => 2 + 0.08 * size;

interface Law {
  began(now: number, size: number): void;
  ended(now: number, waiting: number): void;
  pauseMs(now: number, waiting: number): number;
}

const following = (): Law => {
  const pace = new FlushPace();
  return {
    began: (now, size) => pace.began(now, size),
    ended: (now, waiting) => pace.ended(now, waiting),
    pauseMs: (now, waiting) => pace.pauseMs(now, waiting, paceMs),
  };
};

/** A flush every `ms`, however many callers there are. */
const constant = (ms: number) => (): Law => {
  let beganAt = Number.NEGATIVE_INFINITY;
  return {
    began: (now) => {
      beganAt = now;
    },
    ended: () => {},
    pauseMs: (now) => Math.max(0, beganAt + ms - now),
  };
};

interface Callers {
  /** How many come at this time. */
  coming(now: number): number;
  answered?(now: number, count: number): void;
}

/** Comings of no memory, so many a millisecond while `isOn`. */
const poisson = (perMs: number, isOn: (now: number) => boolean = () => true): Callers => {
  const chance = chanceOf("comings");
  const mean = perMs * stepMs;
  const some = () => Math.floor(mean) + (chance.happens(mean % 1) ? 1 : 0);
  return { coming: (now) => (isOn(now) ? some() : 0) };
};

/** So many who come again `thinkMs` after each answer. */
const again = (count: number, thinkMs: () => number): Callers => {
  let due = Array.from({ length: count }, thinkMs);
  return {
    coming(now) {
      const before = due.length;
      due = due.filter((at) => at > now);
      return before - due.length;
    },
    answered(now, answered) {
      for (let one = 0; one < answered; one++) due.push(now + thinkMs());
    },
  };
};

const spread = (leastMs: number, mostMs: number) => {
  const chance = chanceOf("thinking");
  return () => leastMs + chance.number() * (mostMs - leastMs);
};

/** One lane and its store, for `ms` of its own time. */
function simulate(law: Law, callers: Callers, ms = 4_000) {
  const waiting: number[] = [];
  const latencies: number[] = [];
  const begins: number[] = [];
  let under: { endsAt: number; since: number[] } | undefined;
  for (let now = 0; now < ms; now += stepMs) {
    if (under && now >= under.endsAt) {
      law.ended(now, waiting.length);
      for (const since of under.since) latencies.push(now - since);
      callers.answered?.(now, under.since.length);
      under = undefined;
    }
    for (let coming = callers.coming(now); coming > 0; coming--) waiting.push(now);
    if (under || waiting.length === 0 || law.pauseMs(now, waiting.length) > 0) continue;
    const since = waiting.splice(0, flushMax);
    law.began(now, since.length);
    begins.push(now);
    under = { endsAt: now + flushMsOf(since.length), since };
  }
  const mean = latencies.reduce((sum, one) => sum + one, 0) / latencies.length;
  return { mean, most: Math.max(...latencies), answered: latencies.length, flushes: begins.length, begins };
}

const scenes: Record<string, () => Callers> = {
  "one caller after the other": () => again(1, () => 30),
  "two who overlap now and then": () => again(2, spread(20, 40)),
  "few, at random": () => poisson(0.1),
  "many, at random": () => poisson(0.8),
  "very many": () => poisson(3),
  "bursts of about fifty": () => poisson(2.5, (now) => now % 250 < 20),
  "on and off": () => poisson(1, (now) => now % 800 < 400),
  "sixty-four in a circle": () => again(64, spread(1, 4)),
};

describe("the pace of flushes", () => {
  test.each(Object.keys(scenes))("%s: no constant is better", (scene) => {
    const own = simulate(following(), scenes[scene]!());
    expect(own.most).toBeLessThan(paceMs + 3 * flushMsOf(flushMax));
    for (const ms of [0, 2, 4, 8, 16, 32]) {
      const other = simulate(constant(ms)(), scenes[scene]!());
      const isFaster = other.mean < 0.9 * own.mean;
      const isCheaper = other.flushes / other.answered < 0.9 * (own.flushes / own.answered);
      expect({ ms, isFaster, isCheaper }).not.toEqual({ ms, isFaster: true, isCheaper: true });
    }
  });

  test("an idle store is asked at once", () => {
    for (const scene of ["one caller after the other", "two who overlap now and then", "few, at random"]) {
      const own = simulate(following(), scenes[scene]!());
      const atOnce = simulate(constant(0)(), scenes[scene]!());
      expect(own.mean).toBeLessThan(1.02 * atOnce.mean);
    }
  });

  test("a busy store gets no more flushes than by the constant pace", () => {
    for (const scene of ["many, at random", "very many", "sixty-four in a circle"]) {
      const own = simulate(following(), scenes[scene]!());
      const paced = simulate(constant(paceMs)(), scenes[scene]!());
      expect(own.flushes / own.answered).toBeLessThan(1.1 * (paced.flushes / paced.answered));
    }
    const circle = () => scenes["sixty-four in a circle"]!();
    expect(simulate(following(), circle()).answered).toBeGreaterThan(
      1.2 * simulate(constant(paceMs)(), circle()).answered,
    );
  });

  test("of heavy flushes for a crowd each waits for a half of it, and of few callers for all", () => {
    const halfIsEnough = (crowd: number, isHeavy: boolean, weight = crowd) => {
      const pace = new FlushPace();
      let now = 0;
      for (let round = 0; round < 20; round++) {
        pace.began(now, crowd, weight);
        now += flushMsOf(crowd);
        pace.ended(now, 0, isHeavy);
        now += 1;
      }
      return pace.pauseMs(now, crowd / 2, paceMs) === 0;
    };
    expect(halfIsEnough(64, true)).toBe(true);
    expect(halfIsEnough(64, false)).toBe(false);
    expect(halfIsEnough(16, true)).toBe(false);
    // A few with much to write are a crowd, too: batches of a hundred.
    expect(halfIsEnough(8, true, 800)).toBe(true);
    expect(halfIsEnough(8, false, 800)).toBe(false);
  });

  test("it does not swing: a steady load has steady flushes, at every rate", () => {
    for (const perMs of [0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 2, 5]) {
      const { begins } = simulate(following(), poisson(perMs), 6_000);
      const inWindow = (from: number) => begins.filter((at) => at >= from && at < from + 1_000).length;
      const counts = [1_000, 2_000, 3_000, 4_000, 5_000].map(inWindow);
      const mean = counts.reduce((sum, one) => sum + one, 0) / counts.length;
      for (const count of counts) expect(Math.abs(count - mean)).toBeLessThan(0.3 * mean + 10);
    }
  });

  test("who stays behind alone waits no longer than the next flushes of a busy time", () => {
    const crowd = again(32, () => 5);
    let leaving = 31;
    const left: Callers = {
      coming: (now) => crowd.coming(now),
      answered(now, count) {
        const going = now < 1_000 ? 0 : Math.min(leaving, count);
        leaving -= going;
        crowd.answered!(now, count - going);
      },
    };
    const { begins } = simulate(following(), left, 2_000);
    const after = begins.filter((at) => at > 1_200);
    // A flush and the caller's own five milliseconds: 7.25 on this clock.
    expect(after.length).toBeGreaterThan(800 / 8);
  });

  test("one flush that met a lock does not slow those after it", () => {
    const pace = new FlushPace();
    let now = 0;
    for (const tookMs of [2, 2_000, 2, 2, 2]) {
      now += 30;
      expect(pace.pauseMs(now, 1, paceMs)).toBe(0);
      pace.began(now, 1);
      now += tookMs;
      pace.ended(now, 0);
    }
  });

  test("a pause is whole milliseconds, so that every clock gets past it", () => {
    const pace = new FlushPace();
    let now = 0;
    const pauses: number[] = [];
    for (let flush = 0; flush < 200; flush++) {
      pace.began(now, 4);
      now += 3;
      pace.ended(now, 1);
      const pause = pace.pauseMs(now, 1, paceMs);
      pauses.push(pause);
      now += pause;
    }
    expect(pauses.every(Number.isInteger)).toBe(true);
    expect(new Set(pauses).size).toBeGreaterThan(3);
  });
});
