/* The residual of one steady Euler flow on a CPU: that of solvers/euler.py, which explains the formulas.

   States are (4, I, J), float64, J innermost, in planes of N = I J numbers. Loops along a row of nodes, and along a
   column where blocks are kept by columns, hold arithmetic alone, which a compiler turns into vectors.

   A `vec` is density, two velocities and pressure, or conservative variables, at one place. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define GAMMA 1.4
#define TINY 1e-300

typedef int64_t whole;

typedef struct {
    whole rows, columns, wake, wall; /* I, J */
    const double *edge_i, *edge_j, *normal_i, *normal_j; /* (2, I - 1, J), (2, I, J - 1), twice */
    const double *once, *fit, *exterior; /* (I - 1, J), (3, I, J), (4, I, J) */
    const double *body, *outer, *start, *end; /* (2, I), (2, I), (2, J), (2, J) */
} mesh;

typedef struct {
    double one, two, three, four;
} vec;

typedef struct {
    double x, y;
} pair;

typedef struct { /* room for what a step needs, N = I J */
    double *q, *slopes; /* 4 N, 8 N */
    double *left_i, *right_i, *left_j, *right_j, *diagonal, *time; /* 16 N each by rows (I, 16, J), N */
    double *x, *y, *w, *by_column, *line; /* 4 N each, (J, 4, I), and 96 max(I, J) */
    float *basis, *kept; /* 4 N (count + 1), diagonal 16 N */
    float *inverse_i, *away_i, *toward_i, *inverse_j, *up_j, *low_j; /* 16 N each */
    float *middle, *first; /* 32 J, 16 I */
} room;

static inline double larger(double a, double b) { return a > b ? a : b; }
static inline double smaller(double a, double b) { return a < b ? a : b; }
static inline vec load(const double *a, whole gap) { return (vec){a[0], a[gap], a[2 * gap], a[3 * gap]}; }
static inline void store(double *a, whole gap, vec f) {
    a[0] = f.one, a[gap] = f.two, a[2 * gap] = f.three, a[3 * gap] = f.four;
}
static inline vec minus(vec f) { return (vec){-f.one, -f.two, -f.three, -f.four}; }
static inline pair load2(const double *a, whole gap) { return (pair){a[0], a[gap]}; }

static void primitive(whole n, const double *state, double *q) {
#pragma omp simd
    for (whole k = 0; k < n; k++) {
        const vec s = load(state + k, n);
        const double u = s.two / s.one, v = s.three / s.one;
        store(q + k, n, (vec){s.one, u, v, (GAMMA - 1) * (s.four - 0.5 * (s.two * u + s.three * v))});
    }
}

static inline double enthalpy(vec q) {
    return GAMMA / (GAMMA - 1) * q.four / q.one + 0.5 * (q.two * q.two + q.three * q.three);
}

static inline vec roe(vec l, vec r, pair normal) {
    const double nx = normal.x, ny = normal.y, area = larger(sqrt(nx * nx + ny * ny), TINY);
    const double h_l = enthalpy(l), h_r = enthalpy(r);
    const double through_l = nx * l.two + ny * l.three, through_r = nx * r.two + ny * r.three;
    const double weight = sqrt(r.one / l.one), rho = weight * l.one, share = weight / (1 + weight);
    const double u = l.two + share * (r.two - l.two), v = l.three + share * (r.three - l.three);
    const double h = h_l + share * (h_r - h_l), through = nx * u + ny * v;
    const double sound = sqrt((GAMMA - 1) * (h - 0.5 * (u * u + v * v))), a = sound * area;
    const double still = fabs(through), ahead = fabs(through + a), back = fabs(through - a);
    const double odd = 0.5 * (ahead - back), even = 0.5 * (ahead + back) - still;
    const double impulse = rho * (through_r - through_l), dp = r.four - l.four;
    const double by_a = 1 / (sound * area), by_sound = area * by_a, by_area = sound * by_a;
    const double carried = odd * impulse * by_a + even * dp * by_sound * by_sound;
    const double pushed = odd * dp * by_a + even * impulse * by_area * by_area;
    const double mass_l = l.one * through_l, mass_r = r.one * through_r, pressure = l.four + r.four;
    const double energy = r.one * h_r - r.four - (l.one * h_l - l.four), push = pressure - pushed;
    const double rho_u = still * (r.one * r.two - l.one * l.two), rho_v = still * (r.one * r.three - l.one * l.three);
    return (vec){
        0.5 * (mass_l + mass_r - still * (r.one - l.one) - carried),
        0.5 * (mass_l * l.two + mass_r * r.two + push * nx - rho_u - carried * u),
        0.5 * (mass_l * l.three + mass_r * r.three + push * ny - rho_v - carried * v),
        0.5 * (mass_l * h_l + mass_r * h_r - still * energy - carried * h - pushed * through),
    };
}

static inline double half_step(double d, double slope) {
    const double other = (4 * slope - d) * (1.0 / 3);
    return 0.5 * (d > 0 ? larger(smaller(d, other), 0) : smaller(larger(d, other), 0));
}

/* The state half an edge from a node at q; `d` is the difference along the edge, `sign` -1 at its far end. */
static inline vec beside(vec q, vec d, const double *slope, whole n, pair edge, double sign) {
    const vec a = load(slope, n), b = load(slope + 4 * n, n);
    return (vec){
        q.one + sign * half_step(d.one, a.one * edge.x + b.one * edge.y),
        q.two + sign * half_step(d.two, a.two * edge.x + b.two * edge.y),
        q.three + sign * half_step(d.three, a.three * edge.x + b.three * edge.y),
        q.four + sign * half_step(d.four, a.four * edge.x + b.four * edge.y),
    };
}

/* The flux from the node at q to the one `step` further. */
static inline vec between(const double *q, const double *slope, whole n, whole step, pair edge, pair normal) {
    const vec a = load(q, n), b = load(q + step, n);
    const vec d = {b.one - a.one, b.two - a.two, b.three - a.three, b.four - a.four};
    return roe(beside(a, d, slope, n, edge, 1), beside(b, d, slope + step, n, edge, -1), normal);
}

/* What the two sides of the cut bring to their common nodes, added up; planes are N apart. */
static void join(const mesh *m, double *values, whole planes) {
    const whole n = m->rows * m->columns;
    for (whole c = 0; c < planes; c++)
        for (whole i = 0; m->wake && i <= m->wake; i++) {
            double *one = values + c * n + i * m->columns, *other = values + c * n + (m->rows - 1 - i) * m->columns;
            *one = *other = *one + *other;
        }
}

static void gradients(const mesh *m, const double *q, double *slopes) {
    const whole J = m->columns, n = m->rows * J, plane_i = n - J, plane_j = n - m->rows;
    memset(slopes, 0, 8 * (size_t)n * sizeof(double));
    for (whole c = 0; c < 4; c++)
        for (whole i = 0; i < m->rows; i++) {
            const double *value = q + c * n + i * J;
            double *x = slopes + c * n + i * J, *y = x + 4 * n;
            const double *edge = m->edge_i + i * J, *share = m->once + i * J, *along = m->edge_j + i * (J - 1);
            for (whole j = 0; i < m->rows - 1 && j < J; j++) {
                const double d = (value[J + j] - value[j]) * share[j];
                const double by_x = d * edge[j], by_y = d * edge[plane_i + j];
                x[j] += by_x, y[j] += by_y, x[J + j] += by_x, y[J + j] += by_y;
            }
            for (whole j = 0; j < J - 1; j++) {
                const double d = value[j + 1] - value[j];
                x[j] += d * along[j], y[j] += d * along[plane_j + j];
            }
            for (whole j = 0; j < J - 1; j++) {
                const double d = value[j + 1] - value[j];
                x[j + 1] += d * along[j], y[j + 1] += d * along[plane_j + j];
            }
        }
    join(m, slopes, 8);
    for (whole c = 0; c < 4; c++) {
        double *x = slopes + c * n, *y = x + 4 * n;
#pragma omp simd
        for (whole k = 0; k < n; k++) {
            const double a = x[k], b = y[k];
            x[k] = m->fit[k] * a + m->fit[n + k] * b, y[k] = m->fit[n + k] * a + m->fit[2 * n + k] * b;
        }
    }
}

static void residual(const mesh *m, const room *r, const double *state, double *out) {
    const whole I = m->rows, J = m->columns, n = I * J, plane_i = n - J, plane_j = n - I;
    double *behind = r->line, *ahead = behind + 4 * J, *along = ahead + 4 * J, *spare; /* along: (4, J + 1) */
    const double *far = m->exterior;
    primitive(n, state, r->q);
    gradients(m, r->q, r->slopes);
#pragma omp simd
    for (whole j = 0; j < J; j++)
        store(behind + j, J, minus(roe(load(r->q + j, n), load(far + j, n), load2(m->start + j, J))));
    for (whole i = 0; i < I; i++, far += J) {
        const double *q = r->q + i * J, *slope = r->slopes + i * J, *edge = m->edge_i + i * J;
        const double *normal = m->normal_i + i * J;
        if (i < I - 1) {
#pragma omp simd
            for (whole j = 0; j < J; j++) {
                const pair x = load2(edge + j, plane_i), face = load2(normal + j, plane_i);
                store(ahead + j, J, between(q + j, slope + j, n, J, x, face));
            }
        } else {
#pragma omp simd
            for (whole j = 0; j < J; j++)
                store(ahead + j, J, roe(load(q + j, n), load(far + j, n), load2(m->end + j, J)));
        }
        edge = m->edge_j + i * (J - 1), normal = m->normal_j + i * (J - 1);
#pragma omp simd
        for (whole j = 0; j < J - 1; j++) {
            const pair x = load2(edge + j, plane_j), face = load2(normal + j, plane_j);
            store(along + j + 1, J + 1, between(q + j, slope + j, n, 1, x, face));
        }
        store(along + J, J + 1, roe(load(q + J - 1, n), load(far + J - 1, n), load2(m->outer + i, I)));
        const pair body = load2(m->body + i, I);
        const vec held = {0, q[3 * n] * body.x, q[3 * n] * body.y, 0}, open = roe(load(q, n), load(far, n), body);
        store(along, J + 1, minus(m->wall ? held : open));
        for (whole c = 0; c < 4; c++) {
            const double *up = along + c * (J + 1);
            double *net = out + c * n + i * J;
#pragma omp simd
            for (whole j = 0; j < J; j++) net[j] = ahead[c * J + j] - behind[c * J + j] + up[j + 1] - up[j];
        }
        spare = behind, behind = ahead, ahead = spare;
    }
    join(m, out, 4);
}
