import { mcpBodyBytesMax, mcpRequestsAllMax, mcpRequestsMax } from "../cli/limits.ts";
import { readSent } from "../edge/body.ts";
import { openBodyBudget } from "../edge/body-budget.ts";
import type { Edge } from "../edge/call.ts";
import type { StaticPage } from "../edge/http.ts";
import { restFault } from "../edge/rest.ts";
import { Fault } from "../kit/fault.ts";
import { openOrgLimit } from "../kit/holder-limit.ts";

const bearer = /^Bearer (\S+)$/i;

/** How many calls of this node the body asks for at once: a batch has up to a hundred. */
function callsIn(body: Uint8Array): number {
  try {
    const sent: unknown = JSON.parse(new TextDecoder().decode(body));
    return Array.isArray(sent) ? sent.length : 1;
  } catch {
    // It is answered as what it is, without a call.
    return 1;
  }
}

/**
 * `/mcp`: the tools of `svc mcp`, for who has a key. Each tool is a call that its key makes of this node, so
 * roles, policies, limits and the audit are those of that call. `urlOf` is where this node answers.
 */
export function mcpPage(edge: Pick<Edge, "authenticate" | "loopbackOnly">, urlOf: () => string): StaticPage {
  const room = openBodyBudget("requests for tools");
  const underWay = openOrgLimit({
    ...{ most: mcpRequestsMax, all: mcpRequestsAllMax, what: "requests for tools" },
  });

  async function answer(request: Request, hold: () => void): Promise<Response> {
    const { headers } = request;
    const key = bearer.exec(headers.get("authorization") ?? "")?.[1];
    if (key === undefined && !edge.loopbackOnly)
      throw new Fault("unauthenticated", "Authentication required: Authorization: Bearer with a key");
    const { caller } = await edge.authenticate(request, { reads: false });
    const leave = underWay.acquire(caller);
    let leaveMore = () => {};
    hold();
    try {
      const body = new Uint8Array(await readSent(request, mcpBodyBytesMax, room.reading(caller.id)));
      const more = callsIn(body) - 1;
      if (more > 0) leaveMore = underWay.acquire(caller, more);
      const { answerMcp } = await import("../cli/mcp/command.ts");
      return await answerMcp(new Request(request.url, { method: "POST", headers, body }), {
        target: {
          ...{ url: urlOf(), key },
          environment: headers.get("x-svc-environment") ?? undefined,
          org: headers.get("x-svc-org") ?? undefined,
        },
        allowsWrites: new URL(request.url).searchParams.get("allow-writes") === "true",
        isStatic: false,
      });
    } finally {
      leave();
      leaveMore();
    }
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
