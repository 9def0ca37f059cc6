import { connect, createServer, type Socket } from "node:net";

/** Where a connection goes; undefined refuses it. */
export type Choose = () => number | undefined;

/** A TCP proxy on the loopback address that a test can make slow, deaf or dead. */
export interface TcpProxy {
  port: number;
  /** Each piece is held back by so long, in both directions. */
  delayMs: number;
  /** Directions in which bytes are swallowed although connections stay: `up` from client to server. */
  deaf: { up: boolean; down: boolean };
  /** New connections are refused while this is set. */
  closed: boolean;
  /** Ends every connection. */
  cut(): void;
  connections(): number;
  stop(): Promise<void>;
}

export async function openProxy(choose: Choose): Promise<TcpProxy> {
  const pairs = new Set<{ client: Socket; server: Socket }>();

  const pass = (from: Socket, to: Socket, direction: "up" | "down") => {
    from.on("data", (bytes) => {
      if (proxy.deaf[direction]) return;
      const write = () => {
        if (!to.writable || to.write(bytes)) return;
        from.pause();
        to.once("drain", () => from.resume());
      };
      if (proxy.delayMs > 0) setTimeout(write, proxy.delayMs);
      else write();
    });
    from.on("end", () => setTimeout(() => to.end(), proxy.delayMs));
  };

  const listening = createServer({ allowHalfOpen: true }, (client) => {
    const port = proxy.closed ? undefined : choose();
    if (port === undefined) return void client.resetAndDestroy();
    const server = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    const pair = { client, server };
    pairs.add(pair);
    client.setNoDelay(true);
    server.setNoDelay(true);
    pass(client, server, "up");
    pass(server, client, "down");
    const end = () => {
      pairs.delete(pair);
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      socket.on("error", end);
      socket.on("close", end);
    }
  });
  await new Promise<void>((done, failed) => {
    listening.once("error", failed);
    listening.listen(0, "127.0.0.1", done);
  });
  const address = listening.address();
  const proxy: TcpProxy = {
    port: typeof address === "object" && address ? address.port : 0,
    delayMs: 0,
    deaf: { up: false, down: false },
    closed: false,
    cut() {
      for (const { client, server } of pairs) {
        client.resetAndDestroy();
        server.destroy();
      }
    },
    connections: () => pairs.size,
    stop() {
      proxy.cut();
      return new Promise((done) => listening.close(() => done()));
    },
  };
  return proxy;
}

export interface Balancer extends TcpProxy {
  url: string;
  /** Ports that get new connections now. */
  ready(): number[];
}

const probeEveryMs = 150;
const probeMs = 1_000;

/**
 * A load balancer as an operator would put before the nodes (cluster/haproxy.cfg): `/ready` decides who gets new
 * connections, in turn. While nobody is ready, as without a bus, whoever has a database does.
 */
export async function openBalancer(ports: () => readonly number[]): Promise<Balancer> {
  let ready: number[] = [];
  let serving: number[] = [];
  let turn = 0;
  let stopped = false;
  const proxy = await openProxy(() => serving[turn++ % Math.max(1, serving.length)]);
  const { stop } = proxy;

  const isGood = async (port: number, path: "/ready" | "/health") => {
    try {
      const answer = await fetch(`http://127.0.0.1:${port}${path}`, { signal: AbortSignal.timeout(probeMs) });
      await answer.body?.cancel();
      return answer.ok;
    } catch {
      return false;
    }
  };
  const goodOnes = async (path: "/ready" | "/health") => {
    const asked = ports();
    const answers = await Promise.all(asked.map((port) => isGood(port, path)));
    return asked.filter((_, place) => answers[place]);
  };
  const probe = async () => {
    ready = await goodOnes("/ready");
    serving = ready.length > 0 ? ready : await goodOnes("/health");
  };
  await probe();
  const probing = (async () => {
    while (!stopped) {
      await new Promise((done) => setTimeout(done, probeEveryMs));
      await probe();
    }
  })();
  return Object.assign(proxy, {
    url: `http://127.0.0.1:${proxy.port}`,
    ready: () => [...ready],
    stop: async () => {
      stopped = true;
      await probing;
      await stop();
    },
  });
}
