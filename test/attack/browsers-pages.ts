/** What a page of another site tries: run in the page, with the target's address. Everything is told, nothing throws. */
export interface Tried {
  what: string;
  /** What the page could read of an answer; undefined when nothing. */
  read?: string | undefined;
}

export interface Target {
  /** `http://127.0.0.1:4000` */
  url: string;
  /** What stands in every answer that tells something. */
  marker: string;
}

/** Paths that read something, and that change something, as a page can ask for them. */
export const reading = [
  "/api/v1/events",
  "/api/v1/apikeys",
  "/api/v1/users",
  "/api/v1/secrets",
  "/api/v1/routes",
  "/api/v1/auth/validate",
  "/svc.v1.SvcService/ListRuns?encoding=json&message=%7B%7D&connect=v1",
  "/api/v1/workers/browsers/jobs",
];

export const writing: [path: string, body: object][] = [
  ["/svc.v1.SvcService/Emit", { event: "planted" }],
  ["/svc.v1.SvcService/RegisterFunction", { id: "planted", triggers: [] }],
  ["/svc.v1.SvcService/InvokeFunction", { functionId: "browsed" }],
  ["/api/v1/apikeys", { name: "planted" }],
  ["/api/v1/users", { email: "planted@example.test", password: "correct horse battery", roles: ["admin"] }],
  ["/api/v1/secrets", { name: "planted", value: "planted" }],
  ["/api/v1/environments", { name: "planted" }],
  ["/api/v1/workers/browsers/register", { function_ids: ["browsed"] }],
];

/** Runs inside the browser: it may use nothing from outside itself. */
export async function attackFromPage(input: {
  target: Target;
  reading: string[];
  writing: [string, object][];
}): Promise<Tried[]> {
  const { target, reading: reads, writing: writes } = input;
  const tried: Tried[] = [];
  // Pages have no clock of ours.
  const after = (ms: number, late: () => void) => AbortSignal.timeout(ms).addEventListener("abort", late);
  const soon = <T>(work: Promise<T>, ms = 1_500) =>
    Promise.race([work, new Promise<undefined>((late) => after(ms, () => late(undefined)))]);
  const ask = async (what: string, path: string, init: RequestInit) => {
    const answer = await soon(
      // An answer may stop in its middle: what a page cannot read is nothing read.
      fetch(target.url + path, { ...init, signal: AbortSignal.timeout(1_200) })
        .then(async (response) =>
          response.type === "opaque" || !response.ok ? undefined : await response.text(),
        )
        .catch(() => undefined),
    );
    tried.push({ what: `${what} ${path}`, read: answer });
  };
  const asks: Promise<void>[] = [];
  for (const [mode, credentials] of [
    ["cors", "include"],
    ["no-cors", "include"],
    ["cors", "omit"],
  ] as const) {
    {
      const how = `fetch ${mode} ${credentials}`;
      for (const path of reads) asks.push(ask(how, path, { mode, credentials }));
      for (const [path, body] of writes) {
        const text = JSON.stringify(body);
        for (const type of ["application/json", "text/plain"])
          asks.push(
            ask(`${how} ${type}`, path, {
              method: "POST",
              mode,
              credentials,
              body: text,
              headers: { "content-type": type },
            }),
          );
        asks.push(ask(`${how} no type`, path, { method: "POST", mode, credentials, body: new Blob([text]) }));
      }
      asks.push(ask(`${how} DELETE`, "/api/v1/secrets/kept", { method: "DELETE", mode, credentials }));
    }
  }
  for (const [path, body] of writes) navigator.sendBeacon(target.url + path, JSON.stringify(body));
  await Promise.all(asks);

  const loads: Promise<unknown>[] = [];
  const loaded = reads.slice(0, 2).concat(reads.slice(-1));
  for (const path of loaded) {
    for (const tag of ["img", "script", "link", "iframe"]) {
      const element = document.createElement(tag) as HTMLElement & Record<string, unknown>;
      if (tag === "link") Object.assign(element, { rel: "stylesheet", href: target.url + path });
      else element[tag === "object" ? "data" : "src"] = target.url + path;
      loads.push(
        new Promise((over) => {
          element.onload = () => over(undefined);
          element.onerror = () => over(undefined);
          after(500, () => over(undefined));
        }),
      );
      document.body.append(element);
    }
    const events = new EventSource(target.url + path, { withCredentials: true });
    loads.push(
      new Promise((over) => {
        events.onmessage = ({ data }) => {
          tried.push({ what: `EventSource ${path}`, read: String(data) });
        };
        events.onerror = () => over(undefined);
        after(500, () => over(undefined));
      }).then(() => events.close()),
    );
  }
  for (const [path, body] of writes) {
    for (const enctype of ["text/plain"]) {
      const frame = document.createElement("iframe");
      frame.name = `frame-${Math.random()}`;
      document.body.append(frame);
      const form = document.createElement("form");
      Object.assign(form, { method: "POST", action: target.url + path, enctype, target: frame.name });
      const field = document.createElement("input");
      // The body becomes JSON with a tail, where the type lets it.
      field.name = JSON.stringify(body).replace(/\}$/, ',"x":"');
      field.value = '"}';
      form.append(field);
      document.body.append(form);
      form.submit();
    }
  }
  await Promise.all(loads);

  const listen = (what: string, url: string, protocols: string[]) =>
    soon(
      new Promise<void>((over) => {
        let socket: WebSocket;
        try {
          socket = new WebSocket(url, protocols);
        } catch {
          return over();
        }
        socket.onopen = () => {
          tried.push({ what, read: "the socket is open" });
          socket.send(
            JSON.stringify({ type: "subscribe", subscription: { pattern: ">", options: { replay: 10 } } }),
          );
        };
        socket.onmessage = ({ data }) => tried.push({ what, read: String(data) });
        socket.onclose = () => over();
        after(800, () => {
          socket.close();
          over();
        });
      }),
    );
  const ws = target.url.replace("http", "ws");
  await Promise.all([
    listen("WebSocket", `${ws}/ws`, []),
    listen("WebSocket svc.v1", `${ws}/ws`, ["svc.v1"]),
    listen("WebSocket with an empty token", `${ws}/ws?token=`, []),
    listen("WebSocket with a user in its address", `${ws.replace("://", "://x:y@")}/ws`, []),
    listen("WebSocket with a wrong token", `${ws}/ws?token=ifkey_00000000000000000000000000000000`, []),
  ]);
  return tried;
}
