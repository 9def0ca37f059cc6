/**
 * A second thread that renews the leases of a worker's jobs while the first one is busy: a handler that
 * computes for a minute keeps its job, and a process that is gone loses it within seconds.
 */
export interface LeaseThread {
  /** Takes note of a job before its handler begins. Answers its place, for `release`. */
  hold(jobId: string): number;
  release(place: number): void;
  /** The first thread renewed all leases itself, at this address: from now on the second does so, too. */
  beaten(url: string): void;
  /** From now on the thread renews what the first one has not renewed for this long. */
  mind(silenceMs: number): void;
  stop(): void;
}

export interface LeaseThreadOptions {
  /** Of the route that takes heartbeats. */
  url: string;
  headers: Record<string, string>;
  /** Fields of each heartbeat besides its jobs. */
  body: object;
  jobsMax: number;
  /** The thread has ended by itself, or never began. */
  onFailed: (reason: string) => void;
}

/** A place holds the length of an id and its bytes. Ids of jobs have 40 characters. */
const placeBytes = 96;
const marksBytes = 8;
const noPlace = -1;

/**
 * Bundlers lose files that are only named, and functions lose what a bundler put around them: the thread's
 * program is a text. It renews once the count of beats is unchanged for as long as the second mark says.
 */
const program = `
import("node:worker_threads").then(({ workerData, parentPort }) => {
  const { buffer, marksBytes, placeBytes, places, jobsMax, lookMs, headers, body } = workerData;
  let { url } = workerData;
  parentPort.on("message", (next) => {
    url = next;
  });
  const marks = new Int32Array(buffer, 0, 2);
  const bytes = new Uint8Array(buffer, marksBytes);
  const decoder = new TextDecoder();
  let beats = -1;
  let renewedAt = 0;
  let isAsking = false;

  function held() {
    const jobs = [];
    for (let from = 0; from < places * placeBytes; from += placeBytes) {
      const length = Atomics.load(bytes, from);
      if (length > 0) jobs.push({ job_id: decoder.decode(bytes.slice(from + 1, from + 1 + length)) });
    }
    return jobs;
  }

  async function look() {
    const silenceMs = Atomics.load(marks, 1);
    const now = performance.now();
    const count = Atomics.load(marks, 0);
    if (count !== beats) {
      beats = count;
      renewedAt = now;
    }
    if (isAsking || silenceMs === 0 || now - renewedAt < silenceMs) return;
    const jobs = held();
    if (jobs.length === 0) return;
    isAsking = true;
    try {
      let isRenewed = true;
      for (let done = 0; done < jobs.length; done += jobsMax) {
        const slice = jobs.slice(done, done + jobsMax);
        const text = JSON.stringify({ ...body, active_jobs: jobs.length, jobs: slice });
        const signal = AbortSignal.timeout(silenceMs);
        // One that is not answered holds up the others no longer than that.
        const answer = await fetch(url, { method: "POST", headers, body: text, signal }).catch(() => undefined);
        await answer?.arrayBuffer().catch(() => {});
        isRenewed &&= answer?.ok === true;
      }
      if (isRenewed) renewedAt = now;
    } catch {
      // The next look tries again.
    } finally {
      isAsking = false;
    }
  }

  setInterval(look, lookMs);
});
`;

const lookMs = 250;
/** Of one heartbeat: the server refuses more. */
export const heartbeatJobsMax = 1_000;

/** Undefined where there are no threads. The process ends although the thread is there. */
export async function startLeaseThread(options: LeaseThreadOptions): Promise<LeaseThread | undefined> {
  const { url, headers, body, jobsMax, onFailed } = options;
  // Jobs whose last report is not answered are held beside those that run.
  const places = 2 * jobsMax;
  try {
    const buffer = new SharedArrayBuffer(marksBytes + places * placeBytes);
    // Runtimes without threads have no such module.
    const { Worker } = await import("node:worker_threads");
    const layout = { buffer, marksBytes, placeBytes, places, jobsMax: heartbeatJobsMax, lookMs };
    const thread = new Worker(program, { eval: true, workerData: { ...layout, url, headers, body } });
    let isStopped = false;
    const fail = (reason: string) => {
      if (!isStopped) onFailed(reason);
      isStopped = true;
    };
    thread.on("error", (error) => fail(String(error)));
    thread.on("exit", (code) => fail(`it ended with code ${code}`));
    thread.unref();
    const board = boardOf(buffer, places);
    let toldUrl = url;
    return {
      ...board,
      beaten(newUrl) {
        board.beaten(newUrl);
        if (newUrl !== toldUrl) thread.postMessage(newUrl);
        toldUrl = newUrl;
      },
      stop() {
        isStopped = true;
        void thread.terminate();
      },
    };
  } catch {
    return undefined;
  }
}

function boardOf(buffer: SharedArrayBuffer, places: number): Omit<LeaseThread, "stop"> {
  const marks = new Int32Array(buffer, 0, 2);
  const bytes = new Uint8Array(buffer, marksBytes);
  const free = Array.from({ length: places }, (_, place) => places - 1 - place);
  return {
    hold(jobId) {
      const { length } = jobId;
      const place = length < placeBytes ? free.pop() : undefined;
      if (place === undefined) return noPlace;
      const from = place * placeBytes;
      for (let at = 0; at < length; at++) bytes[from + 1 + at] = jobId.charCodeAt(at);
      Atomics.store(bytes, from, length);
      return place;
    },
    release(place) {
      if (place === noPlace) return;
      Atomics.store(bytes, place * placeBytes, 0);
      free.push(place);
    },
    beaten: () => void Atomics.add(marks, 0, 1),
    mind: (silenceMs) => void Atomics.store(marks, 1, Math.ceil(silenceMs)),
  };
}
