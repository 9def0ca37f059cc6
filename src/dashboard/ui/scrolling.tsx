import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

/** Holds what may be wider than its place, such as a table: keys scroll it. Screen readers read `label`. */
export function Scrolling(props: { label: string; class?: string; children: ComponentChildren }) {
  const { label, class: kind = "", children } = props;
  const frame = useRef<HTMLElement>(null);
  const [isWider, setWider] = useState(false);
  useEffect(() => {
    const element = frame.current!;
    const measured = new ResizeObserver(() => setWider(element.scrollWidth > element.clientWidth));
    for (const one of [element, ...element.children]) measured.observe(one);
    return () => measured.disconnect();
  }, []);
  return (
    <section
      ref={frame}
      class={`table-scroll ${kind}`}
      {...(isWider && { "aria-label": label, tabIndex: 0 })}
    >
      {children}
    </section>
  );
}
