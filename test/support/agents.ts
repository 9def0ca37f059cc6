import { createHmac } from "node:crypto";

export interface Got {
  path: string;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
  body: any;
}
export type Answers = (got: Got) => Response | Promise<Response>;

const dispatch = "/svc/agent-tools/dispatch";

/** Agents at `/{name}` that answer what a test says; what they got is kept. */
export function openAgents() {
  const got: Got[] = [];
  const answers = new Map<string, Answers>();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 60,
    async fetch(request) {
      const { pathname: path } = new URL(request.url);
      const text = await request.text();
      const one = { path, headers: request.headers, text, body: JSON.parse(text) };
      got.push(one);
      const answer = path.endsWith(dispatch) && answers.get(path.slice(1, -dispatch.length));
      return answer ? answer(one) : new Response(null, { status: 404 });
    },
  });
  return {
    of: (agent: string) => got.filter(({ path }) => path === `/${agent}${dispatch}`),
    answer: (agent: string, how: Answers) => answers.set(agent, how),
    url: (agent: string) => `http://127.0.0.1:${server.port}/${agent}`,
    stop: () => server.stop(true),
  };
}

export const isSignedBy = (secret: string, { headers, text }: Got) => {
  const seconds = headers.get("x-svc-timestamp")!;
  const signed = createHmac("sha256", Buffer.from(secret, "hex")).update(`${seconds}.${text}`).digest("hex");
  return (
    headers.get("x-svc-signature") === `sha256=${signed}` &&
    Math.abs(Date.now() / 1_000 - Number(seconds)) < 60
  );
};

/** An answer that goes on for as long as it is read. */
export const endless = () => {
  const piece = new Uint8Array(1024 * 1024);
  return new Response(new ReadableStream({ pull: (stream) => stream.enqueue(piece) }));
};
