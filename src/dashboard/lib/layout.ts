import { useEffect, useState } from "preact/hooks";
import type { LaidOut, LayoutQuestion } from "./layers.ts";

let worker: Worker | undefined;
let asked = 0;

interface ScriptPolicies {
  createPolicy(
    name: string,
    rules: { createScriptURL(path: string): string },
  ): { createScriptURL(path: string): string };
}

const ownWorker = /^\/dashboard\/assets\/layout-worker-\w+\.js$/;

let policy: ReturnType<ScriptPolicies["createPolicy"]> | undefined;

/** Browsers with Trusted Types start a worker only by a path that a policy has let through. */
function trusted(path: string): string {
  if (!ownWorker.test(path)) throw new TypeError("no worker of this dashboard");
  const policies = (globalThis as { trustedTypes?: ScriptPolicies }).trustedTypes;
  policy ??= policies?.createPolicy("svc-worker", { createScriptURL: (own) => own });
  return policy?.createScriptURL(path) ?? path;
}

/** Started for the first drawing. The page names its file, since the file's name changes with its content. */
function layoutWorker(): Worker {
  worker ??= new Worker(
    trusted(document.querySelector<HTMLMetaElement>('meta[name="layout-worker"]')!.content),
    { type: "module" },
  );
  return worker;
}

/** The drawing of these nodes and lines once it is ready, until then the last; `lost` without a worker. */
export function useLayout(question: LayoutQuestion): LaidOut | "lost" | undefined {
  const [laid, setLaid] = useState<LaidOut | "lost">();
  const shape = JSON.stringify(question);
  useEffect(() => {
    const number = ++asked;
    const thread = layoutWorker();
    const onAnswer = ({ data }: MessageEvent<{ number: number; laid: LaidOut }>) => {
      if (data.number === number) setLaid(data.laid);
    };
    // A page that was loaded before an upgrade asks for a file that no longer exists.
    const onLost = () => {
      worker = undefined;
      setLaid("lost");
    };
    thread.addEventListener("message", onAnswer);
    thread.addEventListener("error", onLost);
    thread.postMessage({ ...question, number });
    return () => {
      thread.removeEventListener("message", onAnswer);
      thread.removeEventListener("error", onLost);
    };
  }, [shape]);
  return laid;
}
