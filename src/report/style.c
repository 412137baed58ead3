/*
 * One style sheet, two themes. A colour class sets --c; shapes fill, lines stroke and legend squares show it. Colours keep their
 * meaning across panels: blue is arithmetic, teal and orange are copies in and out, purple the optimizer, pink what is recomputed.
 * Windows under 900 px get one column and the narrow drawings; paper gets the light theme and the wide ones.
 */
#include "report/style.h"

#include <stddef.h>

#define LIGHT                                                                                                       \
    "--bg:#f5f6f8;--card:#fff;--ink:#1a2330;--soft:#566274;--line:#dfe4ea;--lane:#eef1f5;--warn:#b3261e;"           \
    "--blue:#2f6bd8;--sky:#7ba9f0;--teal:#14958a;--orange:#d9782a;--purple:#8455c7;--pink:#d0467e;--green:#3f9a4d;" \
    "--gold:#b98a00;--brown:#8d6748;--grey:#8b95a3;--onbar:#fff;color-scheme:light;"
#define DARK                                                                                                        \
    "--bg:#0f1319;--card:#181e26;--ink:#e8edf3;--soft:#9ba8b8;--line:#2b3440;--lane:#212934;--warn:#ff8a80;"        \
    "--blue:#5b93f5;--sky:#a3c5ff;--teal:#35bdae;--orange:#f09a4e;--purple:#ac85ea;--pink:#f0709f;--green:#66bd72;" \
    "--gold:#d9ac2c;--brown:#b98f6d;--grey:#8290a1;--onbar:#0f1319;color-scheme:dark;"

const char *const sl_report_style[] = {
    /* themes and layout */
    ":root{" LIGHT "}\n"
    "@media (prefers-color-scheme:dark){:root{" DARK "}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,-apple-system,\"Segoe UI\",Roboto,"
    "\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1190px;margin:0 auto;padding:24px 20px 40px}\n"
    "header h1{font-size:26px;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}\n"
    "header h1.next{margin-top:36px}\n"
    "header p{margin:0 0 18px;color:var(--soft);overflow-wrap:anywhere}\n"
    "h2.group{font-size:20px;margin:8px 0 12px}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:14px;margin-bottom:16px}\n"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}\n"
    ".tile b{display:block;font-size:27px;line-height:1.15;font-weight:650;font-variant-numeric:tabular-nums}\n"
    ".tile span{display:block;color:var(--ink)}\n"
    ".tile small{display:block;color:var(--soft);font-size:13px}\n"
    ".panels{display:grid;grid-template-columns:1fr 1fr;gap:16px;margin-bottom:16px}\n"
    ".panel{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;min-width:0}\n"
    ".full{grid-column:1/-1}\n"
    ".panel h2{font-size:17px;line-height:1.3;margin:0 0 4px;overflow-wrap:anywhere}\n"
    ".panel .sub{margin:0 0 10px;color:var(--soft);font-size:14px}\n"
    ".verdict h2{font-size:20px}\n",
    /* drawings, tables, colours */
    "svg{display:block;width:100%;height:auto;margin-top:6px}\n"
    ".narrow{display:none;max-width:560px;margin:0 auto}\n"
    "svg text{font-family:inherit;font-size:12px;fill:var(--ink)}\n"
    "svg .num{font-size:11px;fill:var(--soft);font-variant-numeric:tabular-nums}\n"
    "svg .lab{font-size:12px;fill:var(--soft)}\n"
    "svg .strong{fill:var(--ink);font-weight:600}\n"
    "svg .onbar{fill:var(--onbar);font-weight:600}\n"
    "svg .cell{font-size:11px;font-variant-numeric:tabular-nums}\n"
    "svg .cell.dark{fill:#10151c}svg .cell.light{fill:#fff}svg .cell.off{fill:var(--soft)}\n"
    ".f{fill:var(--c)}.l{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}\n"
    ".d1{stroke-dasharray:9 4}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:10 3 2 3}"
    ".event{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:3 3;opacity:.75}\n"
    "svg .mark{font-size:12px;font-weight:700;paint-order:stroke;stroke:var(--card);stroke-width:4px}\n"
    "svg.key{display:inline-block;width:30px;height:auto;flex:none;margin:0}.legend b{color:var(--ink)}\n"
    ".l.dash{stroke-dasharray:6 4}.l.faint{stroke-width:1;opacity:.4}\n"
    ".point{opacity:.85}.grid{stroke:var(--line)}.axis{stroke:var(--soft)}.lane{fill:var(--lane)}.empty{fill:var(--"
    "lane)}\n"
    ".budget{stroke:var(--warn);stroke-width:1.5;stroke-dasharray:7 4}\n"
    ".legend{list-style:none;display:flex;flex-wrap:wrap;gap:3px 16px;margin:2px 0;padding:0;font-size:13px;"
    "color:var(--soft)}\n"
    ".legend li{display:flex;align-items:center;gap:6px;overflow-wrap:anywhere}.legend span{min-width:0}\n"
    ".swatch{width:11px;height:11px;border-radius:3px;background:var(--c);flex:none}.swatch.pale{opacity:.4}\n"
    ".scroll{overflow-x:auto}.tall{max-height:620px;overflow-y:auto}.tall thead th{position:sticky;top:0;"
    "background:var(--card)}\n"
    "table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}\n"
    "th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--line);white-space:nowrap}\n"
    "td.said{width:100%;white-space:pre-wrap;overflow-wrap:anywhere}.said i{color:var(--soft)}\n"
    "th{font-weight:600}thead th{color:var(--soft);font-weight:500}th small{color:var(--soft);font-weight:400}\n"
    ".n{text-align:right}\n"
    ".meter{display:inline-block;width:70px;height:9px;background:var(--lane);border-radius:3px;overflow:hidden;"
    "vertical-align:middle}\n"
    ".meter i{display:block;height:100%;background:var(--c)}\n"
    ".facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(230px,1fr));gap:8px 20px;margin:6px 0 0}\n"
    ".facts div{min-width:0}.facts dt{color:var(--soft);font-size:13px}.facts dd{margin:0;overflow-wrap:anywhere}\n"
    ".notes{margin:4px 0 0;padding-left:20px}\n"
    "footer{color:var(--soft);font-size:13px;margin-top:16px;overflow-wrap:anywhere}\n"
    ".p-forward,.c-loss,.s1{--c:var(--sky)}.p-backward,.c-compute,.b-compute,.g-product,.s0{--c:var(--blue)}\n"
    ".p-recompute,.b-size,.k-hidden,.s4{--c:var(--pink)}.p-optimizer,.k-optimizer,.s5{--c:var(--purple)}\n"
    ".p-in,.p-copy,.b-communication,.k-context,.g-copy,.s2{--c:var(--teal)}.p-out,.k-gradient,.s3{--c:var(--orange)}\n"
    ".c-norm{--c:var(--purple)}.c-rate{--c:var(--teal)}\n"
    ".c-loss{--c:var(--blue)}.c-validation,.c-predicted{--c:var(--orange)}.c-roof{--c:var(--soft)}\n"
    ".k-parameter{--c:var(--blue)}.k-activation,.g-reduction,.s6{--c:var(--green)}\n"
    ".k-workspace,.b-overhead{--c:var(--grey)}.k-data,.b-bandwidth,.g-elementwise,.s7{--c:var(--gold)}\n"
    ".k-result,.b-io{--c:var(--brown)}\n",
    /* small windows and paper */
    "@media (max-width:900px){main{padding:16px 12px "
    "28px}.panels{grid-template-columns:minmax(0,1fr)}.wide{display:none}"
    ".narrow{display:block}.panel{padding:14px 12px}header h1{font-size:22px}}\n"
    "@media "
    "(max-width:900px){.tiles{grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px}.tile{padding:10px "
    "12px}"
    ".tile b{font-size:22px}}\n"
    "@media "
    "(max-width:600px){th,td{padding-right:8px;white-space:normal}.n{white-space:nowrap}th[scope=row]{white-space:"
    "normal}.extra,.meter{display:none}}\n"
    "@media print{:root{" LIGHT "--bg:#fff}body{font-size:12px}.wide{display:block}.narrow{display:none}"
    ".panel,.tile{break-inside:avoid}.scroll{overflow:visible;max-height:none}main{max-width:none;padding:0}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n",
    NULL};
