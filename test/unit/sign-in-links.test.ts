import { describe, expect, test } from "bun:test";
import {
  isLoopbackAddress,
  openSignInLinks,
  signInLinkMs,
} from "../../src/domain/access/sessions/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";

const open = () => {
  const clock = testClock();
  return { clock, links: openSignInLinks({ clock, ids: systemIds(clock) }) };
};

describe("the sign-in link of the first start", () => {
  test("works for ten minutes, and not for a millisecond more", async () => {
    expect(signInLinkMs).toBe(600_000);
    for (const [waitedMs, user] of [
      [signInLinkMs - 1, "usr_first"],
      [signInLinkMs, undefined],
    ] as const) {
      const { clock, links } = open();
      const token = links.issue("usr_first");
      await clock.advance(waitedMs);
      expect(links.take(token)).toBe(user!);
      expect(links.take(token)).toBeUndefined();
    }
  });

  test("works once, and a wrong token does not use it up", () => {
    const { links } = open();
    expect(links.take("")).toBeUndefined();
    const token = links.issue("usr_first");
    for (const wrong of ["", token.slice(1), `${token}x`, token.toUpperCase()])
      expect(links.take(wrong)).toBeUndefined();
    expect(links.take(token)).toBe("usr_first");
    expect(links.take(token)).toBeUndefined();
  });

  test("is for addresses of this machine alone", () => {
    const own = ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "::FFFF:127.0.0.1"];
    expect(own.filter((address) => !isLoopbackAddress(address))).toEqual([]);
    const foreign = [
      ...["", "10.0.0.1", "0.0.0.0", "128.0.0.1", "::", "::2", "fe80::1", "::ffff:10.0.0.1"],
      ...["127.0.0.1.evil", "evil 127.0.0.1", "127.0.0.1\n", "127.0.0", "localhost", "1::1"],
    ];
    expect(foreign.filter(isLoopbackAddress)).toEqual([]);
  });
});
