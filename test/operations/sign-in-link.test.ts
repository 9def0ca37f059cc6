import { describe, expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

/** The answer to one who opens the link at an address: a proxy that is trusted says which. */
const openLink = async ({ url }: TestServer, link: string, address?: string): Promise<Response> =>
  fetch(`${url}/api/v1/auth/login-by-link`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(address !== undefined && { "x-forwarded-for": address }),
    },
    body: JSON.stringify({ link }),
  });

describe.each(engines)("the sign-in link of the first start on %s", (engine) => {
  test("signs nobody in from another machine, who does not use it up either", async () => {
    const server = await startTestServer({ engine, settings: { trustProxy: true } });
    try {
      const link = server.running.signInToken!;
      for (const address of ["10.0.0.1", "::2", "127.0.0.1.evil", "127.0.0.1, 10.0.0.1"]) {
        const refused = await openLink(server, link, address);
        expect(refused.status).toBe(401);
        expect(refused.headers.get("set-cookie")).toBeNull();
      }
      const signed = await openLink(server, link);
      expect(signed.status).toBe(200);
      expect(signed.headers.get("set-cookie")).toContain("svc_dashboard_token=");
      expect((await openLink(server, link)).status).toBe(401);
    } finally {
      await server.stop();
    }
  }, 300_000);

  test("is void ten minutes after the start", async () => {
    let passedMs = 0;
    const base = systemClock();
    const server = await startTestServer({ engine, clock: { ...base, now: () => base.now() + passedMs } });
    try {
      passedMs = 10 * 60_000;
      const late = await openLink(server, server.running.signInToken!);
      expect(late.status).toBe(401);
      expect(await late.text()).toContain("too old");
    } finally {
      await server.stop();
    }
  }, 300_000);
});
