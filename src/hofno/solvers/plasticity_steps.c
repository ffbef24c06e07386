/* Steps of blocks under dies on a CPU: what `Blocks._advance` of solvers/plasticity.py computes, in one pass.

   Elements are visited row by row from below. A row of nodes is moved as soon as both its rows of elements are done,
   so that forces are kept for two rows at a time. Arrays are those of `Blocks`, float64, b blocks innermost: the loops
   over them hold arithmetic alone, the same for every block, which a compiler turns into vectors.

   Names: J rows and I columns of nodes; one, two: diagonals of an element; u, w: velocities along x and y. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t whole;

typedef struct {
    double dt, mean_stiffness, shear, by_yield, growth, stiffness, limit; /* of the material and the hourglass */
    double speed, allowance, start, end; /* of the die */
} numbers;

typedef struct {
    whole rows, columns, count, knots, places; /* J, I, b; knots is -1 without a die */
    double *x, *v, *force; /* (2, J, I, b); of forces the last row alone is kept */
    double *p, *q, *s, *thickness, *hourglass_work, *plastic_work; /* (J - 1, I - 1, b) */
    double *hourglass; /* (2, J - 1, I - 1, b) */
    const double *mass, *inverse_mass; /* (J, I), (2, J, I) */
    double *depth, *die_work, *impact; /* 1, (I, b), (I, b) */
    const double *knot, *coefficients; /* (knots,), (4 + knots, b) */
} blocks;

static inline double larger(double a, double b) { return a > b ? a : b; }
static inline double smaller(double a, double b) { return a < b ? a : b; }

/* exp(a): its series to a^8, with an error below 3e-15 for |a| < 0.1. */
static inline double grown(double a) {
    double series = ((a * (1.0 / 40320) + 1.0 / 5040) * a + 1.0 / 720) * a + 1.0 / 120;
    series = ((a * series + 1.0 / 24) * a + 1.0 / 6) * a + 0.5;
    return 1.0 + a * (1.0 + a * series);
}

/* Elements of row j; their forces are added to those of the rows of nodes below and above, (2, I, b) each. */
static void deform(const blocks *a, const numbers *n, whole j, double *below, double *above) {
    const whole b = a->count, line = a->columns * b, nodes = a->rows * line;
    const whole elements = (a->rows - 1) * (a->columns - 1) * b;
    const double dt = n->dt, half = 0.5 * n->dt, hard = n->mean_stiffness, soft = 6.0 * n->shear;
    const double by_yield = n->by_yield;
    for (whole i = 0; i < a->columns - 1; i++) {
        const whole low = j * line + i * b, element = (j * (a->columns - 1) + i) * b;
        const double *x = a->x + low, *y = x + nodes, *u = a->v + low, *w = u + nodes;
        double *p_ = a->p + element, *q_ = a->q + element, *s_ = a->s + element, *thick = a->thickness + element;
        double *spent = a->hourglass_work + element, *plastic = a->plastic_work + element;
        double *g_ = a->hourglass + element, *h_ = g_ + elements;
        double *fx = below + i * b, *fy = fx + line, *gx = above + i * b, *gy = gx + line;
#pragma omp simd
        for (whole k = 0; k < b; k++) {
            const double u1 = u[k], u2 = u[b + k], u3 = u[line + b + k], u4 = u[line + k];
            const double w1 = w[k], w2 = w[b + k], w3 = w[line + b + k], w4 = w[line + k];
            const double x1 = x[k] + half * u1, x2 = x[b + k] + half * u2;
            const double x3 = x[line + b + k] + half * u3, x4 = x[line + k] + half * u4;
            const double y1 = y[k] + half * w1, y2 = y[b + k] + half * w2;
            const double y3 = y[line + b + k] + half * w3, y4 = y[line + k] + half * w4;
            const double one_x = x3 - x1, one_y = y3 - y1, two_x = x4 - x2, two_y = y4 - y2;
            const double doubled = one_x * two_y - one_y * two_x, scale = 1.0 / doubled, rate = scale * dt;
            const double u_one = u3 - u1, u_two = u4 - u2, w_one = w3 - w1, w_two = w4 - w2;
            const double l_xx = (u_one * two_y - u_two * one_y) * rate, l_yx = (w_one * two_y - w_two * one_y) * rate;
            const double l_xy = (u_two * one_x - u_one * two_x) * rate, l_yy = (w_two * one_x - w_one * two_x) * rate;
            const double turn = l_yx - l_xy, skew_x = x1 + x3 - x2 - x4, skew_y = y1 + y3 - y2 - y4;
            const double by_x = (u1 + u3 - u2 - u4) * dt - l_xx * skew_x - l_xy * skew_y;
            const double by_y = (w1 + w3 - w2 - w4) * dt - l_yx * skew_x - l_yy * skew_y;

            /* the trial stress, and two steps of Newton's method on F^(-1/2) back to the yield surface */
            double p = p_[k] + 0.5 * hard * (l_xx + l_yy);
            double q = q_[k] + n->shear * (l_xx - l_yy) - turn * s_[k];
            double s = s_[k] + n->shear * (l_yx + l_xy) + turn * q_[k];
            const double mean = p * p, rest = 3.0 * (q * q + s * s), size = mean + rest;
            double m = (sqrt(size) * by_yield - 1.0) * size / (mean * hard + rest * soft + 1e-300);
            m = larger(m, 0.0);
            const double both = 1.0 / ((m * hard + 1.0) * (m * soft + 1.0)); /* one division for two */
            const double mean_by = both * (m * soft + 1.0), rest_by = both * (m * hard + 1.0);
            const double mean_left = mean_by * mean_by * mean, rest_left = rest_by * rest_by * rest;
            const double left = mean_left + rest_left;
            const double slope = mean_by * mean_left * hard + rest_by * rest_left * soft + 1e-300;
            m += (sqrt(left) * by_yield - 1.0) * left / slope;
            m = larger(m, 0.0);
            const double less = 1.0 / ((m * hard + 1.0) * (m * soft + 1.0));
            p *= less * (m * soft + 1.0);
            q *= less * (m * hard + 1.0);
            s *= less * (m * hard + 1.0);
            const double thickness = thick[k] * grown((p_[k] - p) * n->growth - 2.0 * m * p);
            plastic[k] += m * doubled * thickness;
            p_[k] = p, q_[k] = q, s_[k] = s, thick[k] = thickness;

            const double limit = sqrt(doubled) * thickness * n->limit, stiff = thickness * n->stiffness;
            double g = g_[k] - 0.5 * turn * h_[k] + by_x * stiff, h = h_[k] + 0.5 * turn * g_[k] + by_y * stiff;
            g = larger(smaller(g, limit), -limit), h = larger(smaller(h, limit), -limit);
            spent[k] += 0.5 * ((g_[k] + g) * by_x + (h_[k] + h) * by_y);
            g_[k] = g, h_[k] = h;

            const double thin = 0.5 * thickness, lean_x = skew_x * scale, lean_y = skew_y * scale;
            const double xx = (p + q) * thin - g * lean_x, yx = s * thin - h * lean_x; /* on faces x */
            const double xy = s * thin - g * lean_y, yy = (p - q) * thin - h * lean_y; /* on faces y */
            const double first_x = xx * two_y - xy * two_x, first_y = yx * two_y - yy * two_x;
            const double second_x = xy * one_x - xx * one_y, second_y = yy * one_x - yx * one_y;
            fx[k] += g - first_x, fy[k] += h - first_y;
            gx[b + k] += g + first_x, gy[b + k] += h + first_y;
            fx[b + k] -= g + second_x, fy[b + k] -= h + second_y;
            gx[k] += second_x - g, gy[k] += second_y - h;
        }
    }
}

/* Nodes of row j move by their velocities, which then change by the forces on them, (2, I, b). */
static void move(const blocks *a, double dt, whole j, const double *force) {
    const whole b = a->count, line = a->columns * b, nodes = a->rows * line;
    for (whole axis = 0; axis < 2; axis++)
        for (whole i = 0; i < a->columns; i++) {
            const double by = dt * a->inverse_mass[(axis * a->rows + j) * a->columns + i];
            double *x = a->x + axis * nodes + j * line + i * b, *v = a->v + axis * nodes + j * line + i * b;
            const double *f = force + axis * line + i * b;
#pragma omp simd
            for (whole k = 0; k < b; k++) {
                x[k] += dt * v[k];
                v[k] -= by * f[k];
            }
        }
}

/* Height and slope of the die of a block at x; c are its coefficients, b apart. */
static inline double die_at(const blocks *a, const numbers *n, const double *c, double x, double *slope) {
    const whole b = a->count;
    const double inside = smaller(larger(x, n->start), n->end);
    double height = ((inside * c[3 * b] + c[2 * b]) * inside + c[b]) * inside + c[0];
    double rise = (3.0 * inside * c[3 * b] + 2.0 * c[2 * b]) * inside + c[b];
    for (whole i = 0; i < a->knots; i++) {
        const double beyond = larger(inside - a->knot[i], 0.0), cubic = c[(4 + i) * b] * beyond * beyond;
        height += cubic * beyond;
        rise += 3.0 * cubic;
    }
    *slope = x == inside ? rise : 0.0;
    return height;
}

/* Nodes i of the top row that would enter the die are put beside it: by how far, and where to, (2, I, b). */
static void keep_out(const blocks *a, const numbers *n, whole i, double depth, double *shift, double *place) {
    const whole b = a->count, line = a->columns * b, nodes = a->rows * line, at = i * b;
    const double *x = a->x + nodes - line + at, *v = a->v + nodes - line + at;
#pragma omp simd
    for (whole k = 0; k < b; k++) {
        double slope;
        const double to_x = x[k] + n->dt * v[k], to_y = x[nodes + k] + n->dt * v[nodes + k];
        const double height = die_at(a, n, a->coefficients + k, to_x, &slope);
        const double over = larger(to_y - height + depth, 0.0) / (1.0 + slope * slope);
        shift[at + k] = over * slope, shift[line + at + k] = -over;
        place[at + k] = to_x + over * slope, place[line + at + k] = to_y - over;
    }
}

/* Edges from nodes i to the next that are too deep in the die, looked at in inner places, push both ends. */
static void push_edges(const blocks *a, const numbers *n, whole i, double depth, double *shift, const double *place) {
    const whole b = a->count, line = a->columns * b, at = i * b;
    const double *x = place + at, *y = x + line, *mass = a->mass + (a->rows - 1) * a->columns + i;
#pragma omp simd
    for (whole k = 0; k < b; k++) {
        double deepest = -1e300, slope = 0.0, share = 0.0;
        for (whole look = 1; look <= a->places; look++) {
            double inclined;
            const double part = (double)look / (double)(a->places + 1), there = x[k] + (x[b + k] - x[k]) * part;
            const double height = die_at(a, n, a->coefficients + k, there, &inclined);
            const double inside = y[k] + (y[b + k] - y[k]) * part - height + depth;
            const int deeper = inside > deepest;
            slope = deeper ? inclined : slope, share = deeper ? part : share, deepest = deeper ? inside : deepest;
        }
        const double left = (1.0 - share) / mass[0], right = share / mass[1], steep = 1.0 + slope * slope;
        const double both = (1.0 - share) * left + share * right;
        const double size = larger(deepest - n->allowance, 0.0) / (2.0 * steep * both);
        shift[at + k] += size * slope * left, shift[line + at + k] -= size * left;
        shift[at + b + k] += size * slope * right, shift[line + at + b + k] -= size * right;
    }
}

/* Impulses on nodes i of the top row, and what the die does by them. */
static void strike(const blocks *a, const numbers *n, whole i, const double *shift) {
    const whole b = a->count, line = a->columns * b, nodes = a->rows * line, at = i * b;
    const whole node = (a->rows - 1) * a->columns + i;
    const double m = a->mass[node], per = 1.0 / n->dt;
    const double by_x = n->dt * a->inverse_mass[node], by_y = n->dt * a->inverse_mass[a->rows * a->columns + node];
    const double *force = a->force + nodes - line + at;
    double *v = a->v + nodes - line + at, *work_of_die = a->die_work + at, *impact = a->impact + at;
#pragma omp simd
    for (whole k = 0; k < b; k++) {
        const double gained_x = shift[at + k] * per, gained_y = shift[line + at + k] * per;
        const double work = -n->speed * m * gained_y;
        const double sum_x = 2.0 * v[k] + by_x * force[k] + gained_x; /* of velocities before forces and after all */
        const double sum_y = 2.0 * v[nodes + k] + by_y * force[nodes + k] + gained_y;
        work_of_die[k] += work;
        impact[k] += work - 0.5 * m * (gained_x * sum_x + gained_y * sum_y);
        v[k] += gained_x, v[nodes + k] += gained_y;
    }
}

/* The top row meets the die; `shift` and `place` are room for (2, I, b) each. */
static void meet(const blocks *a, const numbers *n, double *shift, double *place) {
    *a->depth += n->speed * n->dt;
    const double depth = *a->depth + n->speed * n->dt;
    for (whole i = 0; i < a->columns; i++) keep_out(a, n, i, depth, shift, place);
    for (whole i = 0; i < a->columns - 1; i++) push_edges(a, n, i, depth, shift, place);
    for (whole i = 0; i < a->columns; i++) strike(a, n, i, shift);
}

/* So many steps. Returns 0, or 1 where there is no room for forces of two rows. */
int advance(const blocks *a, const numbers *n, whole steps) {
    const whole line = a->columns * a->count, nodes = a->rows * line;
    const size_t row = 2 * (size_t)line * sizeof(double);
    double *below = malloc(row), *above = malloc(row), *spare;
    if (!below || !above) {
        free(below), free(above);
        return 1;
    }
    for (whole step = 0; step < steps; step++) {
        memset(below, 0, row);
        for (whole j = 0; j < a->rows - 1; j++) {
            memset(above, 0, row);
            deform(a, n, j, below, above);
            move(a, n->dt, j, below);
            spare = below, below = above, above = spare;
        }
        move(a, n->dt, a->rows - 1, below);
        memcpy(a->force + nodes - line, below, row / 2);
        memcpy(a->force + 2 * nodes - line, below + line, row / 2);
        if (a->knots >= 0) meet(a, n, below, above);
    }
    free(below), free(above);
    return 0;
}
