interface Got {
  path: string;
  search: string;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
  body: any;
}

/** Takes messages of alerts by their path; `answer` says what a path answers from then on. */
export function startAlertReceiver() {
  const got: Got[] = [];
  const answers = new Map<string, () => Response | Promise<Response>>();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { pathname: path, search } = new URL(request.url);
      const text = await request.text();
      got.push({ path, search, headers: request.headers, text, body: JSON.parse(text) });
      return answers.get(path)?.() ?? new Response(null, { status: 204 });
    },
  });
  return {
    at: (path: string) => got.filter((one) => one.path === path),
    answer: (path: string, how: () => Response | Promise<Response>) => answers.set(path, how),
    url: (path: string) => `http://127.0.0.1:${server.port}${path}`,
    stop: () => server.stop(true),
  };
}
