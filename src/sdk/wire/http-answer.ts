import type { Agent, IncomingMessage } from "node:http";
import { nodeHttp } from "./node-builtin.ts";

export interface HttpQuestion {
  method: string;
  headers: Record<string, string>;
  body: string | Uint8Array | undefined;
  signal: AbortSignal;
}

/** An answer with its whole body; `text` is empty for 204. */
export interface HttpAnswer {
  status: number;
  header(name: string): string | null;
  text: string;
}

async function askByFetch(url: string, question: HttpQuestion): Promise<HttpAnswer> {
  const { body, ...rest } = question;
  const response = await fetch(url, { ...rest, ...(body !== undefined && { body: body as BodyInit }) });
  const text = response.status === 204 ? "" : await response.text();
  return { status: response.status, header: (name) => response.headers.get(name), text };
}

const { versions } = (globalThis.process ?? {}) as {
  versions?: { node?: string; bun?: string; deno?: string };
};
const isNode = versions?.node !== undefined && versions.bun === undefined && versions.deno === undefined;

/** Only `fetch` obeys this variable of Node without an agent made for it. */
const isProxied = () => globalThis.process?.env?.NODE_USE_ENV_PROXY === "1";

/** As `fetch` does: proxies and servers close idle connections later, so requests rarely meet closing ones */
const idleMs = 4_000;
const agents = new Map<boolean, Agent>();

function agentOf(isTls: boolean): Agent {
  const made = agents.get(isTls) ?? new (nodeHttp(isTls)!.Agent)({ keepAlive: true, timeout: idleMs });
  agents.set(isTls, made);
  return made;
}

/** On Node `fetch` takes twice the CPU of `node:http` and half a millisecond more a call. */
function askByNode(url: string, { method, headers, body, signal }: HttpQuestion): Promise<HttpAnswer> {
  const isTls = url.startsWith("https:");
  return new Promise((answered, failed) => {
    const length = body === undefined ? undefined : Buffer.byteLength(body);
    const request = nodeHttp(isTls)!.request(
      url,
      {
        ...{ method, signal, agent: agentOf(isTls) },
        headers: length === undefined ? headers : { ...headers, "content-length": length },
      },
      (response) => {
        let text = "";
        response.setEncoding("utf8");
        response.on("data", (piece: string) => {
          text += piece;
        });
        response.on("error", failed);
        response.on("end", () =>
          answered({ status: response.statusCode!, header: headerOf(response), text }),
        );
      },
    );
    request.on("error", failed);
    request.end(body);
  });
}

const headerOf =
  ({ headers }: IncomingMessage) =>
  (name: string): string | null => {
    const value = headers[name];
    return value === undefined ? null : String(value);
  };

const isRedirect = (status: number): boolean => status >= 301 && status <= 308 && status !== 304;

/** Asks as the runtime does it best; what the one way does not follow, a redirect, the other does. */
export async function ask(url: string, question: HttpQuestion): Promise<HttpAnswer> {
  if (!isNode || isProxied() || nodeHttp(false) === undefined) return askByFetch(url, question);
  const answer = await askByNode(url, question);
  return isRedirect(answer.status) ? askByFetch(url, question) : answer;
}
