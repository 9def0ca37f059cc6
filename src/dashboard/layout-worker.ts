/** Lays drawings out beside the page's own thread, which stays free for frames and keys. */
import { type LayoutQuestion, layOut } from "./lib/layers.ts";

self.onmessage = ({ data }: MessageEvent<LayoutQuestion & { number: number }>) =>
  self.postMessage({ number: data.number, laid: layOut(data) });
