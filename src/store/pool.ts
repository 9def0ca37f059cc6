import type { Clock } from "../kit/clock.ts";
import { StoreError } from "./store.ts";

/** Something that one caller at a time works with, and that may break. */
export interface Pooled {
  usable(): boolean;
  /** What is under way fails, with this error where one is given. */
  destroy(why?: StoreError): void;
}

export interface PoolOptions<Client extends Pooled> {
  clock: Clock;
  sizeMax: number;
  /** A caller who waited this long gets that the store is unavailable. */
  waitMsMax: number;
  open: () => Promise<Client>;
  /** Told of every caller that found no client free, when its waiting is over. */
  onWaited?: (ms: number) => void;
}

export type Pool<Client extends Pooled> = ReturnType<typeof pool<Client>>;

interface ConnectionRequest<Client> {
  resolve: (client: Client) => void;
  reject: (error: unknown) => void;
  cancel: () => void;
}

/** Opens clients when they are wanted, up to `sizeMax`; callers beyond that wait in order. */
export function pool<Client extends Pooled>(options: PoolOptions<Client>) {
  const { clock, sizeMax, waitMsMax, open, onWaited } = options;
  const idle: Client[] = [];
  const waiting: ConnectionRequest<Client>[] = [];
  let size = 0;
  let closed = false;

  const drop = (client: Client) => {
    size--;
    client.destroy();
  };

  const endRequests = (end: (request: ConnectionRequest<Client>) => void) => {
    for (const request of waiting.splice(0)) {
      request.cancel();
      end(request);
    }
  };

  const opened = async (): Promise<Client> => {
    size++;
    try {
      return await open();
    } catch (error) {
      size--;
      // While clients are in use, the next free one serves a waiting request; with none left all would fail.
      if (size === 0) endRequests((request) => request.reject(error));
      throw error;
    }
  };

  const wait = () =>
    new Promise<Client>((resolve, reject) => {
      const since = onWaited && clock.elapsed();
      const over = () => since !== undefined && onWaited?.(clock.elapsed() - since);
      const cancelLate = clock.after(waitMsMax, () => {
        over();
        waiting.splice(waiting.indexOf(request), 1);
        reject(new StoreError("unavailable", `no connection became free within ${waitMsMax} ms`));
      });
      const request: ConnectionRequest<Client> = {
        resolve,
        reject,
        cancel() {
          cancelLate();
          over();
        },
      };
      waiting.push(request);
    });

  const release = (client: Client) => {
    if (closed) return drop(client);
    if (client.usable()) {
      const request = waiting.shift();
      if (!request) return void idle.push(client);
      request.cancel();
      return request.resolve(client);
    }
    drop(client);
    if (waiting.length > 0) opened().then(release, () => {});
  };

  return {
    async acquire(): Promise<Client> {
      if (closed) throw new StoreError("unavailable", "the store is closed");
      for (let client = idle.pop(); client; client = idle.pop()) {
        if (client.usable()) return client;
        drop(client);
      }
      if (size >= sizeMax) return wait();
      const client = await opened();
      if (!closed) return client;
      drop(client);
      throw new StoreError("unavailable", "the store is closed");
    },
    release,
    /** Those in use are destroyed when they come back. */
    close() {
      closed = true;
      for (const client of idle.splice(0)) drop(client);
      endRequests((request) => request.reject(new StoreError("unavailable", "the store is closed")));
    },
    /** Clients that exist, in use or not. */
    size: () => size,
    /** Clients that are being opened or in somebody's hands. */
    inUse: () => size - idle.length,
    /** Callers that wait for a client. */
    waiting: () => waiting.length,
  };
}
