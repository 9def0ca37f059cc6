/** Strokes on a field of 16 by 16. */
const paths = {
  overview: "M2 9h3l2-6 3 10 2-4h2",
  runs: "M4 3l9 5-9 5z",
  functions: "M10 3H8.5C7 3 6.5 4 6.3 5.5L5.6 11C5.4 12.6 4.8 13 3.5 13M4.5 7h5",
  events: "M9 2L3.5 9H8l-1 5 5.5-7H8z",
  projections: "M2.500 12.500l4-9 3 6 1.500-3 2.500 6z",
  repairs:
    "M9.500 6.500l-6 6a1.400 1.400 0 002 2l6-6M9 4.500a3 3 0 014-2.800L11.300 3.400l1.300 1.300 1.700-1.700a3 3 0 01-4.300 3.500",
  workers: "M3 4h10v3H3zM3 9h10v3H3zM5.500 5.500h.100M5.500 10.500h.100",
  search: "M7 12a5 5 0 100-10 5 5 0 000 10zm7 2l-3.5-3.5",
  menu: "M2 4h12M2 8h12M2 12h12",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5l3.2 3.2L13 5",
  cross: "M4.5 4.5l7 7M11.5 4.5l-7 7",
  dash: "M4 8h8",
  clock: "M8 14A6 6 0 108 2a6 6 0 000 12zM8 5v3.2l2 1.3",
  pause: "M6 4v8M10 4v8",
  play: "M5 3.5l7 4.5-7 4.5z",
  stop: "M4.5 4.5h7v7h-7z",
  undo: "M6 4L3 7l3 3M3.5 7H10a3 3 0 010 6H7",
  copy: "M6 6h7v7H6zM3 10V3h7",
  edit: "M3 13l1-3.2L10.8 3 13 5.2 6.2 12z",
  link: "M6.5 9.5l3-3M7 5l1.2-1.2a2.8 2.8 0 014 4L11 9M9 11l-1.2 1.2a2.8 2.8 0 01-4-4L5 7",
  child: "M4 2v5a2 2 0 002 2h6M9.5 6.5L12 9l-2.5 2.5",
  step: "M8 11a3 3 0 100-6 3 3 0 000 6zM1 8h4M11 8h4",
  sun: "M8 11a3 3 0 100-6 3 3 0 000 6zM8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.4 1.4M11.6 11.6L13 13M13 3l-1.4 1.4M4.4 11.6L3 13",
  moon: "M13 9.5A5.5 5.5 0 016.5 3a5.5 5.5 0 106.5 6.5z",
  user: "M8 8a2.8 2.8 0 100-5.6A2.8 2.8 0 008 8zM2.8 14c.6-2.6 2.6-4 5.2-4s4.600 1.400 5.2 4",
  out: "M6 3H3v10h3M10 5l3 3-3 3M13 8H6",
  chevron: "M6 4l4 4-4 4",
  down: "M4 6l4 4 4-4",
  refresh: "M13 8a5 5 0 11-1.600-3.700M13 2v3h-3",
  alert: "M8 2l6.500 11.500h-13zM8 6.500v3M8 11.500v.100",
  filter: "M2 3.500h12L9.500 9v4L6.500 11.500V9z",
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}
