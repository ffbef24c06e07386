/* Newton steps of one steady Euler flow on a CPU: what `newton_step` of solvers/euler_steady.py computes.

   Vectors of GMRES are kept in float32, as are the factors of the lines: a rounding of 1e-7 changes nothing where a
   quarter of the right-hand side may be left. Residuals, states and sums are float64. */

#include "euler_flow.h"
#include "euler_lines.h"

#define MOST 64 /* vectors of GMRES */
#define LANES 16 /* parts of a sum */
#define ENOUGH 1e-5 /* left of a right-hand side: what further vectors would add is rounding */

/* Numbers of a vector with zeros at its end, so that they are a multiple of LANES. */
static whole padded(whole n) { return (4 * n + LANES - 1) / LANES * LANES; }

/* The most vectors of GMRES that there is room for. */
whole most_vectors(void) { return MOST; }

/* Doubles that a step needs. */
whole room_needed(whole i, whole j, whole count) {
    const whole n = i * j, most = i > j ? i : j, floats = padded(n) * (count + 1) + 7 * 16 * n + 32 * j + 16 * i;
    return 97 * n + 3 * padded(n) + 96 * most + floats / 2 + 1;
}

static room divide(double *a, whole i, whole j, whole count) {
    const whole n = i * j, most = i > j ? i : j;
    room r;
    r.q = a, a += 4 * n, r.slopes = a, a += 8 * n;
    r.left_i = a, a += 16 * n, r.right_i = a, a += 16 * n, r.left_j = a, a += 16 * n, r.right_j = a, a += 16 * n;
    r.diagonal = a, a += 16 * n, r.time = a, a += n;
    r.x = a, a += padded(n), r.y = a, a += padded(n), r.w = a, a += padded(n), r.by_column = a, a += 4 * n;
    r.line = a, a += 96 * most;
    float *f = (float *)a;
    r.basis = f, f += padded(n) * (count + 1), r.kept = f, f += 16 * n;
    r.inverse_i = f, f += 16 * n, r.away_i = f, f += 16 * n, r.toward_i = f, f += 16 * n;
    r.inverse_j = f, f += 16 * n, r.up_j = f, f += 16 * n, r.low_j = f, f += 16 * n;
    r.middle = f, f += 32 * j, r.first = f;
    return r;
}

/* Sums have LANES parts, the same on every processor; n is a multiple of that. */
static double total(const double *part) {
    double sum = 0;
    for (whole l = 0; l < LANES; l++) sum += part[l];
    return sum;
}

static double norm(const double *a, whole n) {
    double part[LANES] = {0};
    for (whole k = 0; k < n; k += LANES)
        for (whole l = 0; l < LANES; l++) part[l] += a[k + l] * a[k + l];
    return sqrt(total(part));
}

static double largest(const double *a, whole n) {
    double part[LANES] = {0}, most = 0;
    for (whole k = 0; k < n; k += LANES)
        for (whole l = 0; l < LANES; l++) part[l] = larger(part[l], fabs(a[k + l]));
    for (whole l = 0; l < LANES; l++) most = larger(most, part[l]);
    return most;
}

static double inner(const float *v, const double *w, whole n) {
    double part[LANES] = {0};
    for (whole k = 0; k < n; k += LANES)
        for (whole l = 0; l < LANES; l++) part[l] += v[k + l] * w[k + l];
    return total(part);
}

/* w - by v, and its inner product with the vector after v. */
static double subtract(const float *v, double by, double *w, whole n) {
    const float *next = v + n;
    double part[LANES] = {0};
    for (whole k = 0; k < n; k += LANES)
        for (whole l = 0; l < LANES; l++) {
            w[k + l] -= by * v[k + l];
            part[l] += next[k + l] * w[k + l];
        }
    return total(part);
}

/* r->x = the change of a state that GMRES with up to `most` vectors finds. Returns what is left of the right side. */
static double solve(const mesh *m, const room *r, const double *state, const double *now, double size, whole most) {
    const whole n = m->rows * m->columns, all = padded(n);
    whole count = 0;
    double h[MOST][MOST + 1], cosine[MOST], sine[MOST], target[MOST + 1] = {0}, weight[MOST];
    target[0] = size;
    for (whole k = 4 * n; k < all; k++) r->basis[k] = 0, r->x[k] = r->y[k] = r->w[k] = 0;
    for (whole k = 0; k < 4 * n; k++) r->basis[k] = (float)(-now[k] / size);
    while (count < most && !(fabs(target[count]) <= ENOUGH * size)) {
        const whole column = count++;
        float *next = r->basis + all * (column + 1);
        const float *last = next - all;
        for (whole k = 0; k < 4 * n; k++) r->x[k] = last[k];
        precondition(m, r, r->x);
        const double by = 1e-8 / larger(largest(r->x, all), TINY), back = 1 / by;
        for (whole k = 0; k < 4 * n; k++) r->y[k] = state[k] + by * r->x[k];
        residual(m, r, r->y, r->w);
        for (whole c = 0; c < 4; c++)
            for (whole k = 0; k < n; k++) {
                const whole at = c * n + k;
                r->w[at] = r->time[k] * r->x[at] + (r->w[at] - now[at]) * back;
            }
        double *own = h[column], part = inner(r->basis, r->w, all);
        for (whole k = 0; k <= column; k++) {
            own[k] = part;
            part = subtract(r->basis + all * k, part, r->w, all);
        }
        const double length = larger(norm(r->w, all), TINY), scale = 1 / length;
        for (whole k = 0; k < all; k++) next[k] = (float)(r->w[k] * scale);
        for (whole k = 0; k < column; k++) { /* the rotations that made the columns before triangular */
            const double a = own[k], b = own[k + 1];
            own[k] = cosine[k] * a + sine[k] * b, own[k + 1] = cosine[k] * b - sine[k] * a;
        }
        const double radius = larger(hypot(own[column], length), TINY);
        cosine[column] = own[column] / radius, sine[column] = length / radius, own[column] = radius;
        target[column + 1] = -sine[column] * target[column], target[column] *= cosine[column];
    }
    for (whole row = count - 1; row >= 0; row--) {
        double sum = target[row];
        for (whole k = row + 1; k < count; k++) sum -= h[k][row] * weight[k];
        weight[row] = sum / h[row][row];
    }
    memset(r->x, 0, (size_t)all * sizeof(double));
    for (whole row = 0; row < count; row++) subtract(r->basis + all * row, -weight[row], r->x, all);
    precondition(m, r, r->x);
    return fabs(target[count]) / size;
}

/* The largest relative change of density or pressure when `change` is added to the flow at q. */
static double relative_change(whole n, const double *q, const double *change) {
    double most = 0;
    for (whole k = 0; k < n; k++) {
        const vec s = load(q + k, n), d = load(change + k, n);
        const double kinetic = 0.5 * (s.two * s.two + s.three * s.three);
        const double dp = (GAMMA - 1) * (d.four - s.two * d.two - s.three * d.three + kinetic * d.one);
        most = larger(most, larger(fabs(d.one) / s.one, fabs(dp) / s.four));
    }
    return most;
}

/* One step of a flow with its residual and their norm, in place, by at most `most` in density and pressure; `a` is room
   for it. Returns whether the step was taken, and in `told` what GMRES left and the length of the step. */
int newton_step(
    const mesh *m, double *a, whole count, double cfl, double most, double *state, double *now, double *size,
    double *told) {
    const whole n = m->rows * m->columns;
    const room r = divide(a, m->rows, m->columns, count);
    primitive(n, state, r.q);
    assemble(m, &r, cfl);
    factorise_j(m, &r);
    factorise_i(m, &r);
    told[0] = solve(m, &r, state, now, larger(*size, TINY), count);
    primitive(n, state, r.q);
    const double length = told[1] = smaller(1, most / larger(relative_change(n, r.q, r.x), TINY));
    for (whole k = 0; k < 4 * n; k++) r.y[k] = state[k] + length * r.x[k];
    residual(m, &r, r.y, r.w);
    const double found = norm(r.w, padded(n));
    if (!(found < 10 * *size)) return 0; /* nor is a norm that is not a number */
    memcpy(state, r.y, 4 * (size_t)n * sizeof(double));
    memcpy(now, r.w, 4 * (size_t)n * sizeof(double));
    *size = found;
    return 1;
}

/* The residual alone: for trials. */
void residual_of(const mesh *m, double *a, const double *state, double *out) {
    const room r = divide(a, m->rows, m->columns, 0);
    residual(m, &r, state, out);
}

/* Blocks and factors at a state, and the preconditioner once, in place: for trials. */
void precondition_of(const mesh *m, double *a, const double *state, double cfl, double *x) {
    const room r = divide(a, m->rows, m->columns, 0);
    primitive(m->rows * m->columns, state, r.q);
    assemble(m, &r, cfl);
    factorise_j(m, &r);
    factorise_i(m, &r);
    precondition(m, &r, x);
}
