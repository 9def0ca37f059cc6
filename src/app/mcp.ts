import { mcpBodyBytesMax } from "../cli/limits.ts";
import { readSent } from "../edge/body.ts";
import { openBodyBudget } from "../edge/body-budget.ts";
import type { StaticPage } from "../edge/http.ts";
import { restFault } from "../edge/rest.ts";
import { Fault } from "../kit/fault.ts";

const bearer = /^Bearer (\S+)$/i;
const refusedHead = { "content-type": "application/json", "www-authenticate": "Bearer" };

/**
 * `/mcp`: the tools of `svc mcp`, for who has a key. Each tool is a call that its key makes of this node, so
 * roles, policies, limits and the audit are those of that call. `urlOf` is where this node answers.
 */
export function mcpPage(urlOf: () => string): StaticPage {
  const room = openBodyBudget("requests for tools");

  async function answer(request: Request, hold: () => void): Promise<Response> {
    const key = bearer.exec(request.headers.get("authorization") ?? "")?.[1];
    const url = urlOf();
    const known = await fetch(new URL("/api/v1/auth/session", url), {
      headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
    });
    if (!known.ok) return new Response(await known.text(), { status: known.status, headers: refusedHead });
    hold();
    const body = new Uint8Array(await readSent(request, mcpBodyBytesMax, room.reading(key ?? "")));
    const { answerMcp } = await import("../cli/mcp/command.ts");
    const { headers } = request;
    return answerMcp(new Request(request.url, { method: "POST", headers, body }), {
      target: {
        ...{ url, key },
        environment: headers.get("x-svc-environment") ?? undefined,
        org: headers.get("x-svc-org") ?? undefined,
      },
      allowsWrites: new URL(request.url).searchParams.get("allow-writes") === "true",
      isStatic: false,
    });
  }

  return {
    method: "POST",
    path: "/mcp",
    handle: (request, _params, server) =>
      answer(request, () => server.timeout(request, 0)).catch((error) => {
        if (error instanceof Fault) return restFault(error, {});
        throw error;
      }),
  };
}
