import { expect, test } from "bun:test";
import { openComputeShares } from "../../src/kit/compute-shares.ts";

test("a holder computes for a second, and then for a fifth of the time", () => {
  let now = 0;
  const inShare = openComputeShares({ elapsed: () => now });
  const compute = (holder: string, ms: number) => inShare(holder, "texts", () => (now += ms));
  for (let times = 0; times < 63; times++) compute("a", 20);
  expect(() => compute("a", 20)).toThrow("texts of this key take too long");
  expect(compute("b", 20)).toBe(1_280);
  now += 100;
  expect(() => inShare("a", "texts", () => 0)).not.toThrow();
  const failing = () =>
    inShare("a", "texts", () => {
      now += 2_000;
      throw new Error("no such text");
    });
  expect(failing).toThrow("no such text");
  expect(failing).toThrow("take too long");
});
